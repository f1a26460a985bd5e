#include "prepack/convert/gguf/expert_stacks.h"

#include <string>
#include <vector>

#include "catch.h"
#include "prepack/convert/gguf/sources.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

using gguf::ExpertStack;
using gguf::FindExpertStacks;
using gguf::Joined;

constexpr std::string_view kLayer = "model.layers.3.";

std::vector<gguf::Source> SourcesOf(const std::vector<std::string>& names) {
  std::vector<gguf::Source> sources;
  for (const std::string& name : names) sources.push_back({.name = std::string(kLayer) + name});
  return sources;
}

using Experts = std::vector<std::vector<size_t>>;

TEST_CASE("experts of gpt-oss become the stacks that its converter knows") {
  const auto sources =
      SourcesOf({"mlp.experts.1.gate_proj.weight", "mlp.experts.0.gate_proj.weight",
                 "mlp.experts.0.up_proj.weight", "mlp.experts.1.up_proj.weight",
                 "mlp.experts.0.down_proj.weight", "mlp.experts.1.down_proj.weight",
                 "mlp.experts.0.gate_proj.bias", "mlp.experts.0.up_proj.bias", "mlp.router.weight",
                 "mlp.experts.gate_up_proj.0.weight", "self_attn.q_proj.weight"});
  const Json config = {{"model_type", "gpt_oss"}};
  const std::vector<ExpertStack> stacks = Value(FindExpertStacks(config, sources));
  REQUIRE(stacks.size() == 3);
  CHECK(stacks[0].name == "model.layers.3.mlp.experts.down_proj");
  CHECK(stacks[0].experts == Experts{{4}, {5}});
  CHECK(stacks[0].transposed);
  CHECK(stacks[1].name == "model.layers.3.mlp.experts.gate_up_proj");
  CHECK(stacks[1].experts == Experts{{1, 2}, {0, 3}});
  CHECK(stacks[1].joined == Joined::kAlternating);
  CHECK(stacks[1].transposed);
  CHECK(stacks[2].name == "model.layers.3.mlp.experts.gate_up_proj_bias");
  CHECK(stacks[2].experts == Experts{{6, 7}});
  CHECK_FALSE(stacks[2].transposed);
}

TEST_CASE("experts of Granite's hybrids come one behind the other") {
  const auto sources =
      SourcesOf({"block_sparse_moe.experts.0.w1.weight", "block_sparse_moe.experts.0.w3.weight",
                 "block_sparse_moe.experts.0.w2.weight"});
  const std::vector<ExpertStack> stacks =
      Value(FindExpertStacks({{"model_type", "granitemoehybrid"}}, sources));
  REQUIRE(stacks.size() == 2);
  CHECK(stacks[0].name == "model.layers.3.block_sparse_moe.input_linear.weight");
  CHECK(stacks[0].experts == Experts{{0, 1}});
  CHECK(stacks[0].joined == Joined::kBehindEachOther);
  CHECK_FALSE(stacks[0].transposed);
  CHECK(stacks[1].name == "model.layers.3.block_sparse_moe.output_linear.weight");
  CHECK(stacks[1].experts == Experts{{2}});
  CHECK(Value(FindExpertStacks({{"model_type", "mixtral"}}, sources)).empty());
}

TEST_CASE("a stack with a hole is refused") {
  const Json config = {{"model_type", "gpt_oss"}};
  CheckError(FindExpertStacks(config, SourcesOf({"mlp.experts.1.down_proj.weight"})).status(),
             ErrorKind::kMalformed, "expert 0 has no down_proj.weight");
  CheckError(FindExpertStacks(config, SourcesOf({"mlp.experts.0.gate_proj.weight"})).status(),
             ErrorKind::kMalformed, "expert 0 has no up_proj.weight");
  CheckError(
      FindExpertStacks(config, SourcesOf({"mlp.experts.4000000000.down_proj.weight"})).status(),
      ErrorKind::kMalformed, "no expert can have this number");
}

}  // namespace
}  // namespace prepack::testing
