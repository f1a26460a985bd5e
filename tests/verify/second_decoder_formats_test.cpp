// The second decoders of AWQ and AutoRound, against the readers that they are a check of.

#include <string>
#include <vector>

#include "canonical/dequantize.h"
#include "container/checkpoint.h"
#include "formats/format.h"
#include "golden_file.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/second_decoder.h"

namespace prepack {
namespace {

using testing::Fixture;
using testing::GoldenFile;
using testing::RequireOk;
using testing::Value;

std::vector<float> Weights(const DecodedRows& decoded, uint64_t k) {
  std::vector<float> weights;
  const uint64_t group_size = k / decoded.groups;
  for (size_t i = 0; i < decoded.steps.size(); ++i) {
    const double scale = decoded.scales[i / k * decoded.groups + i % k / group_size];
    weights.push_back(static_cast<float>(decoded.steps[i] * scale));
  }
  return weights;
}

TEST_CASE("second decoders of AWQ and AutoRound give the dequantized truth of real checkpoints") {
  struct Case {
    std::string name;
    std::string truth;
  };
  for (const Case& c : std::vector<Case>{{"awq-gemm-g128", "awq-gemm-g128"},
                                         {"awq-gemv-g128", "awq-gemm-g128"},
                                         {"awq-gemvfast-g128", "awq-gemm-g128"},
                                         {"ar-w4-sym-g128", "ar-w4-sym-g128"},
                                         {"ar-w3-sym", "ar-w3-sym"},
                                         {"ar-w4-sym-mixed", "ar-w4-sym-mixed"},
                                         {"ar-arawq-w4-asym", "ar-arawq-w4-asym"}}) {
    CAPTURE(c.name);
    const Checkpoint source = Value(Checkpoint::Open(Fixture("checkpoints/" + c.name)));
    const QuantizedModel model = Value(ReadQuantizedModel(source));
    const SecondDecoder decoder = Value(SecondDecoder::Make(source, model.format));
    const GoldenFile truth(Fixture("truth/" + c.truth + ".safetensors"));
    REQUIRE(model.modules.size() >= 6);
    for (const auto& module : model.modules) {
      CAPTURE(module->module());
      DecodedRows decoded;
      RequireOk(decoder.Decode(module->module(), module->k(), 0, 16, decoded));
      CHECK(Weights(decoded, module->k()) ==
            truth.Values<float>(module->module() + ".rows_first16"));
      RequireOk(decoder.Decode(module->module(), module->k(), module->n() - 16, 16, decoded));
      CHECK(Weights(decoded, module->k()) ==
            truth.Values<float>(module->module() + ".rows_last16"));
      // Rows that begin inside a word.
      RequireOk(decoder.Decode(module->module(), module->k(), 21, 5, decoded));
      std::vector<float> expected(5 * module->k());
      DequantizeBuffers buffers;
      RequireOk(DequantizeRows(*module, 21, 5, buffers, expected));
      CHECK(Weights(decoded, module->k()) == expected);
      CHECK_FALSE(decoder.Decode(module->module(), module->k(), module->n() - 1, 2, decoded).ok());
    }
  }
}

}  // namespace
}  // namespace prepack
