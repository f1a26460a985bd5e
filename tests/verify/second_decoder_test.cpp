#include "verify/second_decoder.h"

#include <vector>

#include "container/checkpoint.h"
#include "formats/ct_example.h"
#include "golden_file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Fixture;
using testing::GoldenFile;
using testing::kExampleModule;
using testing::RequireOk;
using testing::TempFolder;
using testing::Value;

// The f32 weights that a decoder gives for some rows.
std::vector<float> Weights(const DecodedRows& decoded, uint64_t k) {
  std::vector<float> weights;
  for (size_t i = 0; i < decoded.steps.size(); ++i) {
    const uint64_t group = i / (k / decoded.groups);
    weights.push_back(static_cast<float>(decoded.steps[i] * decoded.scales[group]));
  }
  return weights;
}

TEST_CASE("the second decoder gives the dequantized truth of real checkpoints") {
  for (const char* name : {"ct-w4a16-g128-sym", "ct-w4a16-g32-asym", "ct-w4a16-channel-sym",
                           "ct-w4a16-g128-sharded"}) {
    const Checkpoint source = Value(Checkpoint::Open(Fixture(std::string("checkpoints/") + name)));
    const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
    const GoldenFile truth(Fixture(std::string("truth/") + name + ".safetensors"));
    size_t modules = 0;
    for (const auto& [tensor_name, tensor] : source.tensors()) {
      const std::string suffix = ".weight_packed";
      if (!tensor_name.ends_with(suffix)) continue;
      const std::string module = tensor_name.substr(0, tensor_name.size() - suffix.size());
      INFO(name << " " << module);
      const uint64_t n = tensor.shape[0];
      const uint64_t k = tensor.shape[1] * 8;
      DecodedRows decoded;
      RequireOk(decoder.Decode(module, k, 0, 16, decoded));
      CHECK(Weights(decoded, k) == truth.Values<float>(module + ".rows_first16"));
      RequireOk(decoder.Decode(module, k, n - 16, 16, decoded));
      CHECK(Weights(decoded, k) == truth.Values<float>(module + ".rows_last16"));
      ++modules;
    }
    CHECK(modules == 7);
  }
}

TEST_CASE("rows that do not start at a word of zero points are decoded right") {
  TempFolder temp;
  testing::AsymmetricExample().Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
  DecodedRows decoded;
  RequireOk(decoder.Decode(kExampleModule, 16, 2, 1, decoded));
  CHECK(Weights(decoded, 16) == std::vector<float>{0.25F, 0, 0.375F, -0.125F, 0.5F, -0.25F, 0.625F,
                                                   -0.375F, 0.1875F, -0.4375F, 0.25F, -0.5F,
                                                   0.3125F, -0.5625F, -0.125F, -0.625F});
}

TEST_CASE("what the second decoder cannot decode is an error") {
  TempFolder temp;
  testing::SymmetricExample().Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  CheckError(SecondDecoder::Make(source, "awq").status(), ErrorKind::kUnsupported,
             "no second decoder");
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "compressed-tensors"));
  DecodedRows decoded;
  CheckError(decoder.Decode("no.such", 16, 0, 1, decoded), ErrorKind::kMalformed,
             "tensor no.such.weight_packed: it is missing");
  CheckError(decoder.Decode(kExampleModule, 24, 0, 1, decoded), ErrorKind::kMalformed, "disagree");
  CheckError(decoder.Decode(kExampleModule, 15, 0, 1, decoded), ErrorKind::kMalformed, "disagree");
  CHECK_FALSE(decoder.Decode(kExampleModule, 16, 3, 2, decoded).ok());  // past the last row
}

}  // namespace
}  // namespace prepack
