#include "verify/second_decoder.h"

#include <string>
#include <vector>

#include "container/checkpoint.h"
#include "golden_file.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Fixture;
using testing::GoldenFile;
using testing::RequireOk;
using testing::Value;

std::vector<float> Weights(const DecodedRows& decoded, uint64_t k) {
  std::vector<float> weights;
  for (size_t i = 0; i < decoded.steps.size(); ++i) {
    const uint64_t group = i / (k / decoded.groups);
    weights.push_back(static_cast<float>(decoded.steps[i] * decoded.scales[group]));
  }
  return weights;
}

TEST_CASE("the second decoder gives the truth of real GPTQ checkpoints") {
  struct Case {
    std::string name;
    uint64_t bits;
  };
  for (const Case& c : {Case{"gptqmodel-w4-sym-g128", 4}, Case{"gptqmodel-w4-asym-v1", 4},
                        Case{"gptqmodel-w4-asym-v2", 4}, Case{"gptqmodel-w3-sym", 3},
                        Case{"gptqmodel-w8-sym", 8}, Case{"ar-gptq-w4-asym", 4}}) {
    const Checkpoint source = Value(Checkpoint::Open(Fixture("checkpoints/" + c.name)));
    const SecondDecoder decoder = Value(SecondDecoder::Make(source, "gptq"));
    const GoldenFile truth(Fixture("truth/" + c.name + ".safetensors"));
    size_t modules = 0;
    for (const auto& [tensor_name, tensor] : source.tensors()) {
      const std::string suffix = ".qweight";
      if (!tensor_name.ends_with(suffix)) continue;
      const std::string module = tensor_name.substr(0, tensor_name.size() - suffix.size());
      INFO(c.name << " " << module);
      const uint64_t n = tensor.shape[1];
      const uint64_t k = tensor.shape[0] * 32 / c.bits;
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

TEST_CASE("what the second decoder of GPTQ cannot decode is an error") {
  const std::string name = "model.layers.0.mlp.up_proj";
  const Checkpoint source =
      Value(Checkpoint::Open(Fixture("checkpoints/gptqmodel-w4-actorder-g128")));
  DecodedRows decoded;
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "gptq"));
  CheckError(decoder.Decode(name, 384, 0, 1, decoded), ErrorKind::kUnsupported,
             "no second decoder for activation order");
  CheckError(decoder.Decode("no.such", 384, 0, 1, decoded), ErrorKind::kMalformed,
             "no.such.qweight");
  CheckError(decoder.Decode(name, 385, 0, 1, decoded), ErrorKind::kMalformed, "disagree");
  const Checkpoint natural = Value(Checkpoint::Open(Fixture("checkpoints/gptqmodel-w4-sym-g128")));
  CheckError(Value(SecondDecoder::Make(natural, "gptq")).Decode(name, 384, 1536, 1, decoded),
             ErrorKind::kMalformed, "not a matrix of the expected size");
}

}  // namespace
}  // namespace prepack
