#include "prepack/formats/plain_linear.h"

#include <vector>

#include "catch.h"
#include "formats/checkpoint_builder.h"
#include "prepack/container/checkpoint.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// Element i of the weight is i.
std::vector<std::byte> CountingHalves(size_t count) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(i & 0xFFU));
    bytes.push_back(static_cast<std::byte>(i >> 8));
  }
  return bytes;
}

Checkpoint OpenPlain(const TempFolder& folder) {
  TestCheckpoint made;
  made.tensors = {{"flat.weight", "BF16", {16}, CountingHalves(16)},
                  {"half.weight", "F16", {4, 4}, CountingHalves(16)},
                  {"lm_head.weight", "BF16", {64, 8}, CountingHalves(512)}};
  made.Write(folder.path());
  auto opened = Checkpoint::Open(folder.path());
  REQUIRE(opened.ok());
  return *std::move(opened);
}

TEST_CASE("a matrix of BF16 is a plain weight, and nothing else") {
  const TempFolder folder;
  const Checkpoint checkpoint = OpenPlain(folder);
  CHECK(FindPlainWeight(checkpoint, "lm_head") == checkpoint.Find("lm_head.weight"));
  CHECK(FindPlainWeight(checkpoint, "flat") == nullptr);
  CHECK(FindPlainWeight(checkpoint, "half") == nullptr);
  CHECK(FindPlainWeight(checkpoint, "missing") == nullptr);
}

TEST_CASE("codes of a plain layer are its weights") {
  const TempFolder folder;
  const Checkpoint checkpoint = OpenPlain(folder);
  const auto linear = MakePlainLinear(checkpoint, *checkpoint.Find("lm_head.weight"));
  CHECK(linear->module() == "lm_head");
  CHECK(linear->n() == 64);
  CHECK(linear->k() == 8);
  CHECK(linear->source_bytes() == 1024);
  CHECK(linear->source_tensors() == std::vector<std::string_view>{"lm_head.weight"});
  const PanelRange part{.n0 = 3, .rows = 2, .k0 = 4, .cols = 2};
  std::vector<std::byte> codes(8);
  REQUIRE(linear->ReadCodes(part, codes).ok());
  CHECK(codes == Hex("1c 00 1d 00 24 00 25 00"));
  CHECK_FALSE(linear->FindCodes(part));
  const auto place = linear->FindCodes({.n0 = 33, .rows = 1, .k0 = 0, .cols = 8});
  REQUIRE(place);
  CHECK(place->tensor == "lm_head.weight");
  CHECK(place->offset == 33 * 16);
  std::vector<float> scales(2);
  REQUIRE(linear->ReadScales(3, 2, scales).ok());
  CHECK(scales == std::vector<float>{1, 1});
  std::vector<uint8_t> zeros(2, 9);
  REQUIRE(linear->ReadZeroPoints(3, 2, zeros).ok());
  CHECK(zeros == std::vector<uint8_t>{0, 0});
  CHECK(linear->ReadScales(63, 2, scales).kind() == ErrorKind::kUsage);
  CHECK(linear->ReadZeroPoints(63, 2, zeros).kind() == ErrorKind::kUsage);
  CHECK(linear->ReadCodes({.n0 = 63, .rows = 2, .k0 = 0, .cols = 2}, codes).kind() ==
        ErrorKind::kUsage);
}

TEST_CASE("a weight of a plain layer and its bytes lead to each other") {
  const TempFolder folder;
  const Checkpoint checkpoint = OpenPlain(folder);
  const auto linear = MakePlainLinear(checkpoint, *checkpoint.Find("lm_head.weight"));
  const StoredBits bits = linear->places()->WhereCode(5, 3);
  REQUIRE(bits.size() == 1);
  CHECK(bits[0] == BitRun{.tensor = "lm_head.weight", .bit = 43 * 16, .bits = 16});
  const PanelRange near = linear->places()->CodesNear(87);
  CHECK(near.n0 == 5);
  CHECK(near.rows == 1);
  CHECK(near.k0 == 3);
  CHECK(near.cols == 1);
  CHECK(linear->places()->WhereScale(0, 0).empty());
  CHECK(linear->places()->WhereZeroPoint(0, 0).empty());
}

}  // namespace
}  // namespace prepack::testing
