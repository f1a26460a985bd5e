// Codes of 3, 5, 6 and 7 bits are stored in one of two packings under one name.

#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/defects.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Int64s;
using testing::kExampleModule;
using testing::TestCheckpoint;

// 3 bits, [4, k] in `words` words per row, all bits zero.
TestCheckpoint ThreeBits(uint64_t k, uint64_t words, const std::string& version) {
  TestCheckpoint stored;
  stored.config = testing::ExampleConfig(true);
  testing::ExampleWeights(stored) = {{"num_bits", 3}, {"strategy", "channel"}};
  Json& config = stored.config["quantization_config"];
  config["version"] = version;
  if (version.empty()) config.erase("version");
  std::vector<std::byte> scales;
  for (int row = 0; row < 4; ++row) {
    scales.push_back(std::byte{0x80});
    scales.push_back(std::byte{0x3F});
  }
  stored.tensors = {
      {kExampleModule + ".weight_packed", "I32", {4, words}, std::vector<std::byte>(16 * words)},
      {kExampleModule + ".weight_scale", "BF16", {4, 1}, scales},
      {kExampleModule + ".weight_shape", "I64", {2}, Int64s({4, static_cast<int64_t>(k)})},
  };
  return stored;
}

TEST_CASE("The number of words tells the packing, or the version does") {
  // 32 codes: 3 words when dense, 4 when aligned.
  testing::RequireOk(testing::ReadEverything(ThreeBits(32, 3, "")));
  testing::RequireOk(testing::ReadEverything(ThreeBits(32, 4, "")));
  testing::RequireOk(testing::ReadEverything(ThreeBits(32, 3, "0.18.0")));
  testing::RequireOk(testing::ReadEverything(ThreeBits(32, 4, "0.17.1")));
  // 100 codes: 10 words in both.
  testing::RequireOk(testing::ReadEverything(ThreeBits(100, 10, "0.18.0")));
  testing::RequireOk(testing::ReadEverything(ThreeBits(100, 10, "0.17.1")));
}

TEST_CASE("A packing that nothing tells is refused, and so is a version that is wrong") {
  Status status = testing::ReadEverything(ThreeBits(100, 10, ""));
  CheckError(status, ErrorKind::kMalformed,
             "it is not clear which of the two packings the codes have (found 10 words for 100 "
             "codes of 3 bits, no version, expected 10 words since compressed-tensors 0.18.0, 10 "
             "before)");
  CHECK(status.id() == "packing-undecidable");
  status = testing::ReadEverything(ThreeBits(32, 4, "0.19.0"));
  CheckError(status, ErrorKind::kMalformed, "the version contradicts the number of words");
  CHECK(status.id() == "packing-undecidable");
  status = testing::ReadEverything(ThreeBits(32, 3, "0.17.1"));
  CheckError(status, ErrorKind::kMalformed, "the version contradicts the number of words");
}

}  // namespace
}  // namespace prepack
