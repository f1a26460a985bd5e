#include "prepack/inspect/places.h"

#include <algorithm>

#include "formats/ct_example.h"
#include "formats/gptq_example.h"
#include "prepack/base/random.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

OpenedFolder Written(const TempFolder& temp, const TestCheckpoint& checkpoint) {
  checkpoint.Write(temp.path());
  return Value(OpenedFolder::Open(temp.path()));
}

uint64_t OffsetOf(const OpenedFolder& folder, const std::string& tensor) {
  return folder.checkpoint->Find(tensor)->offset;
}

ByteContents At(const OpenedFolder& folder, uint64_t offset) {
  return Value(ReadByteContents(folder, "model.safetensors", offset));
}

TEST_CASE("a byte of codes holds two weights, low nibble first") {
  const TempFolder temp;
  const OpenedFolder folder = Written(temp, SymmetricExample());
  // Row 1 begins at byte 8 of [4, 2] words; its bytes are 79 6a 5b …
  const ByteContents contents =
      At(folder, OffsetOf(folder, kExampleModule + ".weight_packed") + 17);
  CHECK(contents.holds == "code");
  CHECK(contents.byte == 0x6A);
  CHECK(contents.module == kExampleModule);
  CHECK(contents.form == "compressed-tensors");
  CHECK(contents.element == std::vector<uint64_t>{2, 0});
  REQUIRE(contents.numbers.size() == 2);
  CHECK(contents.numbers[0].n == 2);
  CHECK(contents.numbers[0].k == 2);
  CHECK(contents.numbers[0].bit == 0);
  CHECK(contents.numbers[1].k == 3);
  CHECK(contents.numbers[1].bit == 4);
  CHECK(contents.numbers[1].bits == 4);
}

TEST_CASE("bytes of scales, zero points, padding, other tensors and the header are told apart") {
  const TempFolder temp;
  const OpenedFolder folder = Written(temp, AsymmetricExample());
  const ByteContents scale = At(folder, OffsetOf(folder, kExampleModule + ".weight_scale") + 7);
  CHECK(scale.holds == "scale");
  REQUIRE(scale.numbers.size() == 1);
  CHECK(scale.numbers[0].n == 1);
  CHECK(scale.numbers[0].g == 1);
  // One word per group holds the zero points of four channels in its low half.
  const uint64_t zeros = OffsetOf(folder, kExampleModule + ".weight_zero_point");
  const ByteContents zero_point = At(folder, zeros + 5);
  CHECK(zero_point.holds == "zero point");
  REQUIRE(zero_point.numbers.size() == 2);
  CHECK(zero_point.numbers[0].n == 2);
  CHECK(zero_point.numbers[0].g == 1);
  CHECK(zero_point.numbers[1].n == 3);
  CHECK(At(folder, zeros + 6).holds == "padding");
  const ByteContents shape = At(folder, OffsetOf(folder, kExampleModule + ".weight_shape") + 8);
  CHECK(shape.holds == "data");
  CHECK(shape.module == kExampleModule);
  CHECK(shape.element == std::vector<uint64_t>{1});
  const ByteContents norm = At(folder, OffsetOf(folder, "model.norm.weight"));
  CHECK(norm.holds == "data");
  CHECK(norm.module.empty());
  CHECK(At(folder, 7).holds == "header length");
  CHECK(At(folder, 8).holds == "header");
  CHECK(At(folder, 8).byte == '{');
}

TEST_CASE("a byte that several weights cross holds parts of them") {
  GptqExample x;
  x.n = 32;
  x.bits = 3;
  x.group_size = 32;
  x.stored_zeros = true;
  x.Randomize(3, 1);
  const TempFolder temp;
  const OpenedFolder folder = Written(temp, MakeGptq(x));
  // Byte 3 of the first word of channel 5: code 8 from bit 24 on, 9, and two bits of 10.
  const ByteContents contents = At(folder, OffsetOf(folder, kGptqModule + ".qweight") + 4 * 5 + 3);
  REQUIRE(contents.numbers.size() == 3);
  for (const uint64_t i : {0U, 1U, 2U}) {
    CHECK(contents.numbers[i].n == 5);
    CHECK(contents.numbers[i].k == 8 + i);
    CHECK(contents.numbers[i].bit == 3 * i);
    CHECK(contents.numbers[i].bits == (i == 2 ? 2 : 3));
  }
  const FoundWeight found = Value(FindWeight(folder, kGptqModule, 5, 10));
  REQUIRE(found.numbers.front().where.size() == 2);
  CHECK(found.numbers.front().where[1].in_tensor == 4 * (32 + 5));
  CHECK(found.numbers.front().stored == x.codes[10 * x.n + 5]);
}

// The byte that a scale or zero point begins in holds it.
void CheckValueAt(const OpenedFolder& folder, const StoredBits& where, std::string_view what,
                  uint64_t n, uint64_t g) {
  if (where.empty()) return;
  const BitRun& run = where.front();
  const StoredTensor& tensor = *folder.checkpoint->Find(run.tensor);
  const std::string& file = folder.checkpoint->files()[tensor.file].name;
  const ByteContents contents = Value(ReadByteContents(folder, file, tensor.offset + run.bit / 8));
  CHECK(contents.holds == what);
  CHECK(std::ranges::any_of(contents.numbers, [&](const HeldNumber& number) {
    return number.g == g && number.n <= n && n < number.n + number.rows &&
           number.bit == run.bit % 8;
  }));
}

TEST_CASE("scales and zero points of every format are found at their bytes") {
  SplitMix64 random(53);
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    const OpenedFolder folder = Value(OpenedFolder::Open(entry.path()));
    CAPTURE(entry.path().string());
    REQUIRE(folder.model);
    for (const auto& linear : folder.model->modules) {
      const uint64_t n = random.Below(linear->n());
      const uint64_t g = random.Below(linear->groups());
      CAPTURE(linear->module(), n, g);
      CheckValueAt(folder, linear->places()->WhereScale(n, g), "scale", n, g);
      CheckValueAt(folder, linear->places()->WhereZeroPoint(n, g), "zero point", n, g);
    }
  }
}

TEST_CASE("a byte that is not there, or in no file, is refused") {
  const TempFolder temp;
  const OpenedFolder folder = Written(temp, SymmetricExample());
  CheckError(ReadByteContents(folder, "model.safetensor", 0).status(), ErrorKind::kUsage,
             "Did you mean model.safetensors?");
  CheckError(ReadByteContents(folder, "model.safetensors", 1'000'000).status(), ErrorKind::kUsage,
             "beyond the end");
}

}  // namespace
}  // namespace prepack::testing
