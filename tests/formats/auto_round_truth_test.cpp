// Real AutoRound checkpoints against what an independent implementation makes of them.

#include <string>
#include <vector>

#include "catch.h"
#include "formats/truth.h"

namespace prepack {
namespace {

using testing::CheckTruth;
using testing::OpenedModel;

TEST_CASE("Real AutoRound checkpoints dequantize to the truth, to the bit") {
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

TEST_CASE("A real AutoRound checkpoint of mixed widths dequantizes to the truth") {
  const OpenedModel opened = CheckTruth("ar-w4-sym-mixed", "auto-round", 6, "");
  CHECK(opened.model.Find("model.layers.0.self_attn.o_proj") == nullptr);
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.down_proj").scheme()) ==
        "w8a16 group 128 symmetric");
  CHECK(DescribeScheme(opened.Module("model.layers.0.mlp.up_proj").scheme()) ==
        "w4a16 group 128 symmetric");
  CHECK(opened.model.findings.empty());
}

}  // namespace
}  // namespace prepack
