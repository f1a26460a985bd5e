// Real AWQ checkpoints.

#include <string>
#include <vector>

#include "catch.h"
#include "formats/truth.h"

namespace prepack::testing {
namespace {

TEST_CASE("a real AWQ checkpoint dequantizes to the truth, to the bit") {
  const OpenedModel opened = CheckTruth("awq-gemm-g128", "awq", 7, "w4a16 group 128 asymmetric");
  CHECK(opened.model.findings.empty());
}

TEST_CASE("AWQ by GPTQModel, of a layer of a trained decoder, dequantizes to the truth") {
  const OpenedModel opened =
      CheckTruth("gptqmodel-smollm2-awq-g64", "awq", 7, "w4a16 group 64 symmetric");
  CHECK(opened.model.findings.empty());
}

// AutoAWQ wrote the same quantized model three times: its search gives the same numbers each time,
// and only the layout differs. What the truth says of one is then true of all.
TEST_CASE("the three layouts of one real model read as the same numbers") {
  const OpenedModel gemm = MustOpen(Fixture("checkpoints/awq-gemm-g128"));
  for (const char* name : {"awq-gemv-g128", "awq-gemvfast-g128"}) {
    CAPTURE(name);
    const OpenedModel other = MustOpen(Fixture(std::string("checkpoints/") + name));
    CHECK(other.model.findings.empty());
    REQUIRE(other.model.modules.size() == 7);
    for (const auto& module : gemm.model.modules) {
      CAPTURE(module->module());
      const QuantizedLinear& twin = other.Module(module->module());
      CHECK(twin.scheme() == module->scheme());
      CHECK(Codes(twin) == Codes(*module));
      CHECK(Scales(twin, 0, twin.n()) == Scales(*module, 0, twin.n()));
      CHECK(ZeroPoints(twin, 0, twin.n()) == ZeroPoints(*module, 0, twin.n()));
    }
  }
}

TEST_CASE("a real AWQ module names its tensors") {
  const OpenedModel opened = MustOpen(Fixture("checkpoints/awq-gemm-g128"));
  const QuantizedLinear& linear = opened.Module("model.layers.0.mlp.down_proj");
  CHECK(linear.n() == 384);
  CHECK(linear.k() == 1536);
  CHECK(DescribeScheme(linear.scheme()) == "w4a16 group 128 asymmetric");
  CHECK(linear.source_tensors() ==
        std::vector<std::string_view>{"model.layers.0.mlp.down_proj.qweight",
                                      "model.layers.0.mlp.down_proj.scales",
                                      "model.layers.0.mlp.down_proj.qzeros"});
  CHECK(linear.source_bytes() == 1536 * 48 * 4 + 12 * 384 * 2 + 12 * 48 * 4);
}

}  // namespace
}  // namespace prepack::testing
