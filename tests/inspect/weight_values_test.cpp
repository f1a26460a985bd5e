#include "prepack/inspect/weight_values.h"

#include "formats/tiny_model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TEST_CASE("more weights than anybody looks at are not shown") {
  const TempFolder temp;
  TestCheckpoint model = TinyW8A8Model({"a"});
  model.At("a.weight").shape = {1025, 1024};
  model.At("a.weight").bytes.resize(1025 * 1024);
  model.At("a.weight_scale").shape = {1025, 1};
  model.At("a.weight_scale").bytes.resize(1025 * 2, std::byte{0x3F});
  model.Write(temp.path());
  const OpenedFolder folder = Value(OpenedFolder::Open(temp.path()));
  const PanelRange all = {.n0 = 0, .rows = 1025, .k0 = 0, .cols = 1024};
  CheckError(ReadWeightValues(folder, "a", all, ValueKind::kCodes).status(), ErrorKind::kUsage,
             "too many weights to show");
  const PanelRange most = {.n0 = 1, .rows = UINT64_MAX, .k0 = 0, .cols = 1024};
  CHECK(Value(ReadWeightValues(folder, "a", most, ValueKind::kCodes)).values.size() == kMostValues);
}

}  // namespace
}  // namespace prepack::testing
