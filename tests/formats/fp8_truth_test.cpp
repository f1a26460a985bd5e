// Real FP8 checkpoints against what their writers' own decoders make of them.

#include <cmath>

#include "formats/truth.h"

namespace prepack {
namespace {

using testing::CheckTruth;
using testing::Fixture;
using testing::OpenedModel;
using testing::TruthFloats;
using testing::Value;

// The largest difference from the truth, in units of its last place.
double WorstUlps(const std::string& name) {
  const OpenedModel opened = testing::MustOpen(Fixture("checkpoints/" + name));
  const Checkpoint truth = Value(Checkpoint::Open(Fixture("truth/" + name + ".safetensors")));
  REQUIRE(truth.tensors().size() == 2 * opened.model.modules.size());
  double worst = 0;
  for (const auto& module : opened.model.modules) {
    for (const auto& [suffix, n0] :
         {std::pair{".rows_first16", uint64_t{0}}, {".rows_last16", module->n() - 16}}) {
      const std::vector<float> expected = TruthFloats(truth, module->module() + suffix);
      const std::vector<float> found = testing::Dequantize(*module, n0, 16);
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        const double ulp = std::ldexp(1.0, std::ilogb(expected[i]) - 23);
        if (expected[i] == 0) {
          CHECK(found[i] == 0);
        } else {
          worst = std::max(worst, std::abs(double{found[i]} - expected[i]) / ulp);
        }
      }
    }
  }
  return worst;
}

TEST_CASE("GPTQModel's FP8 in all its granularities: a weight is its code divided") {
  // It divides, and we multiply by the reciprocal: each of the three roundings is half a unit.
  for (const std::string granularity : {"tensor", "row", "block", "dynamic"}) {
    CAPTURE(granularity);
    const double worst = WorstUlps("gptqmodel-fp8-" + granularity);
    CHECK(worst > 0);
    CHECK(worst <= 2);
  }
}

TEST_CASE("The granularity of GPTQModel's FP8 is that of the tensors") {
  const std::vector<std::pair<std::string, std::string>> schemes = {
      {"tensor", "wfp8a16 tensor"}, {"row", "wfp8a16 channel"}, {"block", "wfp8a16 block 128x128"}};
  for (const auto& [granularity, scheme] : schemes) {
    const OpenedModel opened =
        testing::MustOpen(Fixture("checkpoints/gptqmodel-fp8-" + granularity));
    CHECK(opened.model.modules.size() == 7);
    CHECK(opened.model.findings.empty());
    for (const auto& module : opened.model.modules) {
      CHECK(DescribeScheme(module->scheme()) == scheme);
    }
  }
  const OpenedModel mixed = testing::MustOpen(Fixture("checkpoints/gptqmodel-fp8-dynamic"));
  CHECK(mixed.model.modules.size() == 6);
  CHECK(mixed.model.findings.empty());
  CHECK(DescribeScheme(mixed.Module("model.layers.0.self_attn.q_proj").scheme()) ==
        "wfp8a16 tensor");
  CHECK(DescribeScheme(mixed.Module("model.layers.0.mlp.up_proj").scheme()) == "wfp8a16 channel");
  CHECK(DescribeScheme(mixed.Module("model.layers.0.mlp.down_proj").scheme()) ==
        "wfp8a16 block 128x128");
}

TEST_CASE("transformers' FP8 dequantizes to the truth, to the bit") {
  const OpenedModel exponents = CheckTruth("hf-fp8-ue8m0", "fp8", 7, "wfp8afp8 block 128x128");
  CHECK(exponents.model.findings.empty());
  const OpenedModel mistral = CheckTruth("hf-fp8-static", "fp8", 7, "wfp8afp8 tensor");
  for (const auto& module : mistral.model.modules) {
    REQUIRE(module->input().has_value());
    CHECK(module->input()->scale > 4.0F / 448);
  }
  // The same weights lie there once more.
  REQUIRE(mistral.model.findings.size() == 1);
  CHECK(mistral.model.findings[0].id == "weights-second-copy");
  CHECK(mistral.model.findings[0].where == "consolidated.safetensors");
}

}  // namespace
}  // namespace prepack
