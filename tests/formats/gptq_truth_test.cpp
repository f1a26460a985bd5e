#include <string>
#include <vector>

#include "formats/truth.h"
#include "prepack/formats/gptq/zeros.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

TEST_CASE("real GPTQ checkpoints dequantize to the truth, to the bit") {
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

TEST_CASE("a real checkpoint with activation order reads in its own order") {
  const OpenedModel opened = CheckTruth("gptqmodel-w4-actorder-g128");
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "order-present");
  CHECK(opened.model.findings[0].more == 6);
  for (const auto& module : opened.model.modules)
    CHECK(Value(module->KOrder())->size() == module->k());
}

TEST_CASE("overrides of a real checkpoint reach the modules that they name") {
  const OpenedModel opened = CheckTruth("gptqmodel-dynamic");
  CHECK(opened.model.findings.empty());
  REQUIRE(opened.model.modules.size() == 6);
  CHECK(opened.model.Find("model.layers.0.self_attn.o_proj") == nullptr);
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.down_proj").scheme()) ==
        "w8a16 group 64 symmetric");
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.up_proj").scheme()) ==
        "w4a16 group 128 symmetric");
}

TEST_CASE("the weights of real asymmetric checkpoints tell how zero points are stored") {
  struct Case {
    std::string name;
    gptq::Zeros zeros;
  };
  for (const Case& c : {Case{"gptqmodel-w4-asym-v1", gptq::Zeros::kMinusOne},
                        Case{"gptqmodel-w4-asym-v2", gptq::Zeros::kStored},
                        Case{"ar-gptq-w4-asym", gptq::Zeros::kMinusOne}}) {
    CAPTURE(c.name);
    const Checkpoint checkpoint = Value(Checkpoint::Open(Fixture("checkpoints/" + c.name)));
    const bool minus_one = c.zeros == gptq::Zeros::kMinusOne;
    gptq::ZeroSample pooled;
    size_t modules = 0;
    const GroupedTensors grouped = GroupByModule(checkpoint);
    for (const ModuleTensors& module : grouped.modules) {
      if (module.Find("qweight") == nullptr) continue;
      gptq::Settings settings;
      settings.symmetric = false;
      settings.zeros = c.zeros;
      const gptq::Shape shape = Value(gptq::CheckShape(checkpoint, module, settings));
      const GroupOrder order = Value(
          ReadGroupOrder(checkpoint, shape.g_idx, shape.k, shape.group_size, GroupDialect::kGptq));
      const gptq::ZeroSample sample = Value(gptq::SampleZeros(checkpoint, shape, order, settings));
      CAPTURE(module.name, sample.Mean(), sample.weights);
      CHECK(sample.Mean() > (minus_one ? 0.75 : -0.25));
      CHECK(sample.Mean() < (minus_one ? 1.25 : 0.25));
      pooled += sample;
      ++modules;
    }
    CHECK(modules == 7);
    CAPTURE(pooled.Mean());
    FindingTally findings;
    CHECK(gptq::CheckZeros(pooled, c.zeros, "x", "", findings).ok());
    const gptq::Zeros other = minus_one ? gptq::Zeros::kStored : gptq::Zeros::kMinusOne;
    CheckError(gptq::CheckZeros(pooled, other, "config.json", "Set the other one", findings),
               ErrorKind::kMalformed,
               minus_one ? "declares zero points as z (v2), but the weights say z - 1 (v1)"
                         : "declares zero points as z - 1 (v1), but the weights say z (v2)");
    CHECK(findings.Take().empty());
    // Between the two, but nearer to the other: worth a warning.
    gptq::ZeroSample between{.weights = 10'000, .sum = minus_one ? 4'000 : 6'000};
    CHECK(gptq::CheckZeros(between, c.zeros, "x", "", findings).ok());
    REQUIRE(findings.Take().size() == 1);
    between.constant_of_other = true;
    CheckError(gptq::CheckZeros(between, c.zeros, "x", "", findings), ErrorKind::kMalformed,
               "one zero point throughout");
  }
}

}  // namespace
}  // namespace prepack::testing
