// Real checkpoints, against what an independent implementation makes of them.

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/read_helpers.h"
#include "formats/truth.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TEST_CASE("real checkpoints dequantize to the truth, to the bit") {
  struct Case {
    std::string name;
    std::string scheme;
    std::string activations;
  };
  const std::vector<Case> cases = {
      {"ct-w4a16-g128-sym", "w4a16 group 128 symmetric", "none"},
      {"ct-w4a16-g32-asym", "w4a16 group 32 asymmetric", "none"},
      {"ct-w4a16-channel-sym", "w4a16 channel symmetric", "none"},
      {"ct-w4a16-g128-sharded", "w4a16 group 128 symmetric", "none"},
      {"ct-gptq-static-act-g128", "w4a16 group 128 symmetric", "none"},
      {"ct-old-asym-g128", "w4a16 group 128 asymmetric", "none"},
      {"ct-w8a16-g128-sym", "w8a16 group 128 symmetric", "none"},
      {"ct-w4a8", "w4a8 group 128 symmetric", "8-bit int per token dynamic"},
      {"ct-w8a8-dynamic", "w8a8 channel symmetric", "8-bit int per token dynamic"},
      {"ct-w8a8-asym-act", "w8a8 channel symmetric", "8-bit int per token dynamic asymmetric"},
      {"ct-w8a8-static", "w8a8 tensor symmetric", "8-bit int per tensor static"},
      {"ct-fp8-dynamic", "wfp8afp8 channel", "8-bit float per token dynamic"},
      {"ct-fp8-block", "wfp8afp8 block 128x128", "8-bit float per group of 128 dynamic"},
      {"ct-fp8-w8a16", "wfp8a16 channel", "none"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const OpenedModel opened = CheckTruth(c.name, "compressed-tensors", 7, c.scheme);
    CHECK(opened.model.findings.empty());
    for (const auto& module : opened.model.modules) {
      CHECK(module->stored_scale_dtype() == DType::kBF16);
      CHECK(DescribeActivations(module->scheme().activations) == c.activations);
      CHECK_FALSE(module->reordered());
      CHECK(module->input().has_value() == (c.name == "ct-w8a8-static"));
    }
  }
}

TEST_CASE("layers of a trained decoder dequantize to the truth, to the bit") {
  const OpenedModel four =
      CheckTruth("ct-smollm2-w4a16-gptq-g64", "compressed-tensors", 14, "w4a16 group 64 symmetric");
  CHECK(four.model.findings.empty());
  const OpenedModel eight =
      CheckTruth("ct-smollm2-w8a16-g64", "compressed-tensors", 7, "w8a16 group 64 symmetric");
  CHECK(eight.model.findings.empty());
}

TEST_CASE("a model whose rotations were folded into the weights is read as it is stored") {
  const OpenedModel opened =
      CheckTruth("ct-spinquant-r1r2", "compressed-tensors", 14, "w4a16 group 32 symmetric");
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "rotation-folded");
}

TEST_CASE("a checkpoint of several groups reads each module by its own") {
  const OpenedModel opened = CheckTruth("ct-mixed", "compressed-tensors", 6, "");
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.down_proj").scheme()) ==
        "w4a16 group 128 symmetric");
  CHECK(DescribeScheme(opened.Module("model.layers.0.self_attn.q_proj").scheme()) ==
        "w8a8 channel symmetric");
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "module-siblings-differ");
  CHECK(opened.model.findings[0].message ==
        "layers that runtimes fuse differ: gate_proj w4a16 group 128 symmetric, up_proj not "
        "quantized");
}

TEST_CASE("integers of 2, 4 and 8 bits in one model, and an embedding, dequantize to the truth") {
  const OpenedModel opened = CheckTruth("ct-mobile", "compressed-tensors", 19, "");
  CHECK(opened.model.findings.empty());
  const auto scheme = [&](const std::string& module) {
    return DescribeScheme(opened.Module("model." + module).scheme());
  };
  CHECK(scheme("layers.0.mlp.up_proj") == "w2a16 channel symmetric");
  CHECK(scheme("layers.0.mlp.down_proj") == "w4a16 channel symmetric");
  CHECK(scheme("layers.0.per_layer_projection") == "w8a16 channel symmetric");
  CHECK(scheme("embed_tokens_per_layer") == "w4a16 channel symmetric");
}

TEST_CASE("weights beside scales of a cache for each head dequantize to the truth") {
  CHECK(CheckTruth("ct-cache-heads", "compressed-tensors", 28, "wfp8afp8 channel")
            .model.findings.empty());
}

TEST_CASE("activation order is told, and undone for those who dequantize") {
  const OpenedModel opened = CheckTruth("ct-old-actorder-group-g128", "compressed-tensors", 7,
                                        "w4a16 group 128 symmetric");
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "order-present");
  CHECK(opened.model.findings[0].more == 6);
  for (const auto& module : opened.model.modules) {
    InputOrder order = *Value(module->KOrder());
    REQUIRE(order.size() == module->k());
    CHECK_FALSE(std::ranges::is_sorted(order));
    std::ranges::sort(order);
    for (uint32_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == i);
    // Panels that begin and end anywhere hold what the whole holds.
    const std::vector<std::byte> whole = Codes(*module);
    const PanelRange range{.n0 = 5, .rows = 20, .k0 = 36, .cols = 130};
    const std::vector<std::byte> part = Codes(*module, range);
    for (uint64_t row = 0; row < range.rows; ++row) {
      for (uint64_t col = 0; col < range.cols; ++col) {
        REQUIRE(PanelCode(CodeType::kU4, part, range.cols, row, col) ==
                PanelCode(CodeType::kU4, whole, module->k(), range.n0 + row, range.k0 + col));
      }
    }
  }
}

TEST_CASE("static activations come with their scale") {
  const OpenedModel opened = MustOpen(Fixture("checkpoints/ct-w8a8-static"));
  const QuantizedLinear& linear = opened.Module("model.layers.0.mlp.down_proj");
  REQUIRE(linear.input().has_value());
  CHECK(linear.input()->scale > 0);
  CHECK(linear.input()->zero_point == 0);
  CHECK(linear.source_tensors().back() == "model.layers.0.mlp.down_proj.input_scale");
}

TEST_CASE("a sharded checkpoint reads as the one that it was split from") {
  const OpenedModel whole = MustOpen(Fixture("checkpoints/ct-w4a16-g128-sym"));
  const OpenedModel sharded = MustOpen(Fixture("checkpoints/ct-w4a16-g128-sharded"));
  REQUIRE(sharded.checkpoint->files().size() == 3);
  REQUIRE(sharded.model.modules.size() == whole.model.modules.size());
  for (size_t i = 0; i < whole.model.modules.size(); ++i) {
    const QuantizedLinear& a = *whole.model.modules[i];
    const QuantizedLinear& b = *sharded.model.modules[i];
    REQUIRE(a.module() == b.module());
    CHECK(a.scheme() == b.scheme());
    CHECK(a.source_tensors() == b.source_tensors());
    CHECK(a.source_bytes() == b.source_bytes());
    CHECK(Codes(a) == Codes(b));
    CHECK(Scales(a, 0, a.n()) == Scales(b, 0, b.n()));
    CHECK(ZeroPoints(a, 0, a.n()) == ZeroPoints(b, 0, b.n()));
  }
}

TEST_CASE("a real module names its tensors and shapes") {
  const OpenedModel opened = MustOpen(Fixture("checkpoints/ct-w4a16-g32-asym"));
  const QuantizedLinear& linear = opened.Module("model.layers.0.mlp.down_proj");
  CHECK(linear.n() == 384);
  CHECK(linear.k() == 1536);
  CHECK(linear.groups() == 48);
  CHECK(linear.source_tensors() ==
        std::vector<std::string_view>{"model.layers.0.mlp.down_proj.weight_packed",
                                      "model.layers.0.mlp.down_proj.weight_scale",
                                      "model.layers.0.mlp.down_proj.weight_zero_point",
                                      "model.layers.0.mlp.down_proj.weight_shape"});
  CHECK(linear.source_bytes() == 384 * 192 * 4 + 384 * 48 * 2 + 48 * 48 * 4 + 16);
}

}  // namespace
}  // namespace prepack::testing
