// Real AutoRound checkpoints against what an independent implementation makes of them.

#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "formats/truth.h"

namespace prepack::testing {
namespace {

TEST_CASE("real AutoRound checkpoints dequantize to the truth, to the bit") {
  struct Case {
    std::string name;
    std::string format;
    std::string scheme;
  };
  const std::vector<Case> cases = {
      {"ar-w4-sym-g128", "auto-round", "w4a16 group 128 symmetric"},
      {"ar-w2-sym", "auto-round", "w2a16 group 32 symmetric"},
      {"ar-w3-sym", "auto-round", "w3a16 group 128 symmetric"},
      {"ar-w8-sym", "auto-round", "w8a16 group 128 symmetric"},
      {"ar-arawq-w4-asym", "auto-round", "w4a16 group 128 asymmetric"},
      {"ar-awq-w4-asym", "awq", "w4a16 group 128 asymmetric"},
  };
  for (const Case& c : cases) {
    const OpenedModel opened = CheckTruth(c.name, c.format, 7, c.scheme);
    CHECK(opened.model.findings.empty());
  }
}

TEST_CASE("a real AutoRound checkpoint of mixed widths dequantizes to the truth") {
  const OpenedModel opened = CheckTruth("ar-w4-sym-mixed", "auto-round", 6, "");
  CHECK(opened.model.Find("model.layers.0.self_attn.o_proj") == nullptr);
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.down_proj").scheme()) ==
        "w8a16 group 128 symmetric");
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.up_proj").scheme()) ==
        "w4a16 group 128 symmetric");
  CHECK(opened.model.findings.empty());
}

TEST_CASE("exports of AutoRound whose configs list their exceptions in two orders are read") {
  for (const auto& [name, format] :
       {std::pair{"ar-w4-sym-patterns", "auto-round"}, {"ar-gptq-w4-sym-patterns", "gptq"}}) {
    const OpenedModel opened = CheckTruth(name, format, 18, "");
    CHECK(opened.model.Find("model.layers.1.mlp.down_proj") == nullptr);
    CHECK(DescribeScheme(opened.Module("model.layers.1.self_attn.q_proj").scheme()) ==
          "w4a16 group 32 symmetric");
    CHECK(DescribeScheme(opened.Module("model.layers.2.mlp.down_proj").scheme()) ==
          "w8a16 group 32 symmetric");
    CHECK(opened.model.findings.empty());
  }
}

TEST_CASE("calibration-free exports of AutoRound are read as each version stored them") {
  const std::string scheme = "w4a16 group 32 asymmetric";
  const OpenedModel labelled = CheckTruth("ar-model-free-w4-asym", "auto-round", 21, scheme);
  CHECK(labelled.model.findings.empty());
  const OpenedModel old = CheckTruth("ar-old-model-free-w4-asym", "auto-round", 21, scheme);
  REQUIRE(old.model.findings.size() == 1);
  CHECK(old.model.findings[0].id == "autoround-model-free-zeros");
}

}  // namespace
}  // namespace prepack::testing
