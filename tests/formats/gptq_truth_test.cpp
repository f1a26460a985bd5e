#include <string>
#include <vector>

#include "formats/truth.h"
#include "prepack/formats/gptq/zeros.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::CheckTruth;
using testing::Fixture;
using testing::OpenedModel;
using testing::Value;

TEST_CASE("Real GPTQ checkpoints dequantize to the truth, to the bit") {
  struct Case {
    std::string name;
    std::string scheme;
  };
  const std::vector<Case> cases = {
      {"gptqmodel-w4-sym-g128", "w4a16 group 128 symmetric"},
      {"gptqmodel-w4-asym-v1", "w4a16 group 128 asymmetric"},
      {"gptqmodel-w4-asym-v2", "w4a16 group 128 asymmetric"},
      {"gptqmodel-w3-sym", "w3a16 group 128 symmetric"},
      {"gptqmodel-w8-sym", "w8a16 group 128 symmetric"},
      {"ar-gptq-w4-sym", "w4a16 group 128 symmetric"},
      {"ar-gptq-w4-asym", "w4a16 group 128 asymmetric"},
  };
  for (const Case& c : cases) {
    const OpenedModel opened = CheckTruth(c.name);
    CHECK(opened.model.format == "gptq");
    CHECK(opened.model.findings.empty());
    REQUIRE(opened.model.modules.size() == 7);
    for (const auto& module : opened.model.modules) {
      CHECK(DescribeScheme(module->scheme()) == c.scheme);
      CHECK_FALSE(module->reordered());
      CHECK(module->stored_scale_dtype() == DType::kF16);
    }
  }
}

TEST_CASE("A real checkpoint with activation order reads in its own order") {
  const OpenedModel opened = CheckTruth("gptqmodel-w4-actorder-g128");
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "order-present");
  CHECK(opened.model.findings[0].more == 6);
  for (const auto& module : opened.model.modules)
    CHECK(Value(module->KOrder())->size() == module->k());
}

TEST_CASE("Overrides of a real checkpoint reach the modules that they name") {
  const OpenedModel opened = CheckTruth("gptqmodel-dynamic");
  CHECK(opened.model.findings.empty());
  REQUIRE(opened.model.modules.size() == 6);
  CHECK(opened.model.Find("model.layers.0.self_attn.o_proj") == nullptr);
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.down_proj").scheme()) ==
        "w8a16 group 64 symmetric");
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.up_proj").scheme()) ==
        "w4a16 group 128 symmetric");
}

TEST_CASE("The weights of real asymmetric checkpoints tell how zero points are stored") {
  struct Case {
    std::string name;
    GptqZeros zeros;
  };
  for (const Case& c : {Case{"gptqmodel-w4-asym-v1", GptqZeros::kMinusOne},
                        Case{"gptqmodel-w4-asym-v2", GptqZeros::kStored},
                        Case{"ar-gptq-w4-asym", GptqZeros::kMinusOne}}) {
    CAPTURE(c.name);
    const Checkpoint checkpoint = Value(Checkpoint::Open(Fixture("checkpoints/" + c.name)));
    const bool minus_one = c.zeros == GptqZeros::kMinusOne;
    GptqZeroSample pooled;
    size_t modules = 0;
    for (const ModuleTensors& module : GroupByModule(checkpoint)) {
      if (module.Find("qweight") == nullptr) continue;
      GptqSettings settings;
      settings.symmetric = false;
      settings.zeros = c.zeros;
      const GptqZeroSample sample = Value(SampleGptqZeros(checkpoint, module, settings));
      CAPTURE(module.name, sample.Mean(), sample.weights);
      CHECK(sample.Mean() > (minus_one ? 0.75 : -0.25));
      CHECK(sample.Mean() < (minus_one ? 1.25 : 0.25));
      pooled += sample;
      ++modules;
    }
    CHECK(modules == 7);
    CAPTURE(pooled.Mean());
    FindingTally findings;
    CHECK(CheckGptqZeros(pooled, c.zeros, "x", "", findings).ok());
    const GptqZeros other = minus_one ? GptqZeros::kStored : GptqZeros::kMinusOne;
    CheckError(CheckGptqZeros(pooled, other, "config.json", "Set the other one", findings),
               ErrorKind::kMalformed,
               minus_one ? "declares zero points as z (v2), but the weights say z - 1 (v1)"
                         : "declares zero points as z - 1 (v1), but the weights say z (v2)");
    CHECK(findings.Take().empty());
    // Between the two, but nearer to the other: worth a warning.
    GptqZeroSample between{.weights = 10'000, .sum = minus_one ? 4'000 : 6'000};
    CHECK(CheckGptqZeros(between, c.zeros, "x", "", findings).ok());
    REQUIRE(findings.Take().size() == 1);
    between.constant_of_other = true;
    CheckError(CheckGptqZeros(between, c.zeros, "x", "", findings), ErrorKind::kMalformed,
               "one zero point throughout");
  }
}

}  // namespace
}  // namespace prepack
