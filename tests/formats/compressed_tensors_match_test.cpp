#include "prepack/formats/compressed_tensors/config.h"

#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"

namespace prepack::testing {
namespace {

// Groups with these targets, in this order.
ct::Config ConfigOfTargets(const Json& targets_by_group, const Json& ignore = Json::array()) {
  Json fields = {{"config_groups", Json::object()}, {"ignore", ignore}};
  for (const auto& [name, targets] : targets_by_group.items()) {
    fields["config_groups"][name] = {{"targets", targets},
                                     {"weights", {{"num_bits", 4}, {"group_size", 32}}}};
  }
  Result<ct::Config> config = ct::ParseConfig({"config", "compressed-tensors", &fields});
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  return *std::move(config);
}

std::string Name(const ct::Group* group) {
  return group == nullptr ? "none" : group->name;
}

TEST_CASE("exact names win over expressions, and these over classes") {
  const ct::Config config = ConfigOfTargets({{"class", {"Linear"}},
                                             {"regex", {"re:.*down_proj"}},
                                             {"name", {"model.layers.0.mlp.down_proj"}}});
  const ct::Matcher matcher(config);
  const auto group = [&](std::string_view module) {
    return Name(*matcher.GroupOf(module, ModuleClass::kLinear));
  };
  CHECK(group("model.layers.0.mlp.down_proj") == "name");
  CHECK(group("model.layers.1.mlp.down_proj") == "regex");
  CHECK(group("model.layers.1.mlp.up_proj") == "class");
  CHECK(Name(*matcher.GroupOf("model.embed_tokens", ModuleClass::kEmbedding)) == "none");
}

TEST_CASE("inside one kind the quantizer goes by the alphabet and vLLM by the config") {
  const ct::Config config = ConfigOfTargets(
      {{"second", {"re:.*mlp.*"}}, {"first", {"re:.*layers.*"}}, {"named", {"a.mlp.b"}}});
  const ct::Matcher matcher(config);
  const std::string_view module = "model.layers.0.mlp.up_proj";
  CHECK(Name(*matcher.GroupOf(module, ModuleClass::kLinear)) == "first");
  CHECK(Name(*matcher.GroupOfVllm(module, ModuleClass::kLinear)) == "second");
  CHECK(Name(*matcher.GroupOf("a.mlp.b", ModuleClass::kLinear)) == "named");
  CHECK(Name(*matcher.GroupOfVllm("a.mlp.b", ModuleClass::kLinear)) == "second");
  CHECK(Name(*matcher.GroupOf("a.b", ModuleClass::kLinear)) == "none");
}

TEST_CASE("a target that stands in two groups belongs to the later one") {
  const ct::Config config =
      ConfigOfTargets({{"early", {"Linear", "a.b"}}, {"late", {"a.b", "Linear"}}});
  const ct::Matcher matcher(config);
  CHECK(Name(*matcher.GroupOf("x.y", ModuleClass::kLinear)) == "late");
  CHECK(Name(*matcher.GroupOf("a.b", ModuleClass::kLinear)) == "late");
  CHECK(Name(*matcher.GroupOfVllm("a.b", ModuleClass::kLinear)) == "late");
}

TEST_CASE("the ignore list takes names, expressions and classes") {
  const ct::Config config = ConfigOfTargets(
      {{"all", {"Linear"}}}, {"lm_head", "re:.*gate$", "Embedding", "model.vision_tower"});
  const ct::Matcher matcher(config);
  const auto ignored = [&](std::string_view module) {
    return *matcher.Ignored(module, ClassOfModule(module));
  };
  CHECK(ignored("lm_head"));
  CHECK(ignored("model.layers.0.mlp.gate"));
  CHECK(ignored("model.embed_tokens"));
  CHECK_FALSE(ignored("model.layers.0.mlp.gate_proj"));
  CHECK_FALSE(ignored("model.vision_tower.blocks.0"));  // no prefix rule
}

}  // namespace
}  // namespace prepack::testing
