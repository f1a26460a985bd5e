// Real FP8 checkpoints against what their writers' own decoders make of them.

#include <cmath>

#include "formats/truth.h"

namespace prepack::testing {
namespace {

// The largest difference from the truth, in units of its last place.
double WorstUlps(const std::string& name) {
  const OpenedModel opened = MustOpen(Fixture("checkpoints/" + name));
  const Checkpoint truth = Value(Checkpoint::Open(Fixture("truth/" + name + ".safetensors")));
  REQUIRE(truth.tensors().size() == 2 * opened.model.modules.size());
  double worst = 0;
  for (const auto& module : opened.model.modules) {
    for (const auto& [suffix, n0] :
         {std::pair{".rows_first16", uint64_t{0}}, {".rows_last16", module->n() - 16}}) {
      const std::vector<float> expected =
          TruthFloats(truth, std::string(module->module()) + suffix);
      const std::vector<float> found = Dequantize(*module, n0, 16);
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        if (expected[i] == 0) {
          CHECK(found[i] == 0);
        } else {
          const double ulp = std::ldexp(1.0, std::ilogb(expected[i]) - 23);
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

TEST_CASE("the granularity of GPTQModel's FP8 is that of the tensors") {
  const std::vector<std::pair<std::string, std::string>> schemes = {
      {"tensor", "wfp8a16 tensor"}, {"row", "wfp8a16 channel"}, {"block", "wfp8a16 block 128x128"}};
  for (const auto& [granularity, scheme] : schemes) {
    const OpenedModel opened = MustOpen(Fixture("checkpoints/gptqmodel-fp8-" + granularity));
    CHECK(opened.model.modules.size() == 7);
    CHECK(opened.model.findings.empty());
    for (const auto& module : opened.model.modules) {
      CHECK(DescribeScheme(module->scheme()) == scheme);
    }
  }
  const OpenedModel mixed = MustOpen(Fixture("checkpoints/gptqmodel-fp8-dynamic"));
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

TEST_CASE("FP8 of publishers dequantizes to the truth, to the bit") {
  for (const auto& [name, modules] :
       {std::pair{"fp8-minimax-fmt", size_t{10}}, {"fp8-ue8m0", size_t{14}}}) {
    CHECK(CheckTruth(name, "fp8", modules, "wfp8afp8 block 128x128").model.findings.empty());
  }
  CHECK(CheckTruth("ct-fp8-tensor", "compressed-tensors", 7, "wfp8afp8 tensor")
            .model.findings.empty());
}

TEST_CASE("FP8 experts whose scales are stacked dequantize to the truth, to the bit") {
  const OpenedModel split = CheckTruth("hf-fp8-stacked-scales", "fp8", 6, "wfp8afp8 block 128x128");
  CHECK(split.model.findings.empty());
  const QuantizedLinear& up = split.Module("model.layers.0.mlp.experts.1.up_proj");
  CHECK(up.source_tensors() ==
        std::vector<std::string_view>{"model.layers.0.mlp.experts.1.up_proj.weight",
                                      "model.layers.0.mlp.experts.gate_up_proj_scale_inv"});
  // Its own weight, and one of the four scales.
  CHECK(up.source_bytes() == 128 * 128 + 4);
}

TEST_CASE("stacked FP8 experts dequantize to the truth, whichever way their matrices lie") {
  for (const std::string name : {"fp8-fused-experts", "fp8-fused-experts-transposed"}) {
    const OpenedModel fused = CheckTruth(name, "fp8", 8, "wfp8afp8 block 128x128");
    CHECK(fused.model.findings.empty());
    const bool transposed = name.ends_with("transposed");
    const std::string experts =
        transposed ? "model.language_model.layers.0.mlp.experts." : "model.layers.0.mlp.experts.";
    const QuantizedLinear& gate_up = fused.Module(experts + "gate_up_proj.1");
    CHECK(gate_up.n() == 256);
    CHECK(gate_up.k() == 160);
    CHECK(gate_up.wide_rows() == (transposed ? 256 : 1));
    CHECK(gate_up.source_bytes() == 256 * 160 + 4 * 4);
    CHECK(fused.Module(experts + "down_proj.0").k() == 128);
  }
}

TEST_CASE("FP8 of ModelOpt, Quark and FBGEMM dequantizes to the truth, to the bit") {
  struct Case {
    std::string name;
    std::string format;
    std::string scheme;
    bool has_input;
  };
  const std::vector<Case> cases = {
      {"modelopt-fp8", "modelopt", "wfp8afp8 tensor", true},
      {"modelopt-hf-quant-config", "modelopt", "wfp8afp8 tensor", true},
      {"modelopt-fp8-channel-token", "modelopt", "wfp8afp8 channel", false},
      {"modelopt-fp8-block", "modelopt", "wfp8a16 block 128x128", false},
      {"quark-fp8", "quark", "wfp8afp8 tensor", true},
      {"quark-fp8-channel", "quark", "wfp8afp8 channel", false},
      {"fbgemm-fp8", "fbgemm-fp8", "wfp8afp8 channel", false},
  };
  for (const Case& c : cases) {
    const OpenedModel opened = CheckTruth(c.name, c.format, 7, c.scheme);
    CHECK(opened.model.findings.empty());
    for (const auto& module : opened.model.modules) {
      CHECK(module->input().has_value() == c.has_input);
      CHECK(module->source_tensors().size() == (c.has_input ? 3 : 2));
    }
  }
  const OpenedModel mixed = CheckTruth("modelopt-mixed-blocks", "modelopt", 10);
  CHECK(mixed.model.findings.empty());
  CHECK(DescribeScheme(mixed.Module("model.layers.0.self_attn.q_proj").scheme()) ==
        "wfp8a16 block 128x128");
  const QuantizedLinear& expert = mixed.Module("model.layers.0.mlp.experts.1.down_proj");
  CHECK(DescribeScheme(expert.scheme()) == "wfp8afp8 block 128x128");
  CHECK(DescribeActivations(expert.scheme().activations) == "8-bit float per group of 128 dynamic");
}

}  // namespace
}  // namespace prepack::testing
