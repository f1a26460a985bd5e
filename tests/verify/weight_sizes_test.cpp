#include "prepack/verify/exactness.h"

#include <cstring>
#include <string>
#include <vector>

#include "catch.h"
#include "check/wide_example.h"
#include "formats/read_helpers.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// Notes on a module whose scales were multiplied.
std::vector<Problem> Notes(float factor) {
  TestCheckpoint checkpoint = WideExample();
  std::vector<std::byte>& scales = checkpoint.At(WideModule(0) + ".weight_scale").bytes;
  for (size_t i = 0; i < scales.size() / 2; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, &scales[2 * i], sizeof bits);
    PutBF16(scales, i, BF16ToF32(bits) * factor);
  }
  const TempFolder folder;
  checkpoint.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  Measurements all;
  LevelResult level;
  RequireOk(NoteWeightSizes(opened.model, {}, all, level));
  return level.notes;
}

TEST_CASE("weights a thousand times too large or small are noted") {
  CHECK(Notes(1).empty());
  for (const float factor : {1000.0F, 0.001F}) {
    const std::vector<Problem> notes = Notes(factor);
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].module == WideModule(0));
    CHECK(notes[0].message.find("the way prepack reads its config, is suspect") !=
          std::string::npos);
  }
}

TEST_CASE("no real checkpoint has weights of another size") {
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    CAPTURE(entry.path().filename());
    const OpenedModel opened = MustOpen(entry.path());
    Measurements all;
    LevelResult level;
    RequireOk(NoteWeightSizes(opened.model, {}, all, level));
    CHECK(level.notes.empty());
  }
}

}  // namespace
}  // namespace prepack::testing
