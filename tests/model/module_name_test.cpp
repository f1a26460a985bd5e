#include "prepack/model/module_name.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("the last part of a name, and what is before it") {
  CHECK(LastPart("model.layers.0.mlp.up_proj") == "up_proj");
  CHECK(LastPart("lm_head") == "lm_head");
  CHECK(LastPart("a.").empty());
  CHECK(ModuleOf("lm_head.weight") == "lm_head");
  CHECK(ModuleOf("lm_head") == "lm_head");
  CHECK(ModuleOf(".weight").empty());
}

TEST_CASE("modules of one role have one name without numbers") {
  CHECK(RoleOf("model.layers.17.mlp.experts.3.up_proj") == "model.layers.#.mlp.experts.#.up_proj");
  CHECK(RoleOf("lm_head") == "lm_head");
  CHECK(RoleOf("model.layers.0.h2o") == "model.layers.#.h2o");
}

TEST_CASE("the layer that a tensor lies in is the innermost") {
  const auto layer = ParseLayerName("model.layers.12.mlp.experts.3.up_proj.weight");
  REQUIRE(layer.has_value());
  CHECK(layer->list == "model.layers");
  CHECK(layer->index == 12);
  CHECK(layer->below == "mlp.experts.3.up_proj.weight");
  const auto inner = ParseLayerName("visual.layers.1.blocks.2.norm.weight");
  REQUIRE(inner.has_value());
  CHECK(inner->list == "visual.layers.1.blocks");
  CHECK(inner->index == 2);
  CHECK_FALSE(ParseLayerName("model.embed_tokens.weight").has_value());
  CHECK_FALSE(ParseLayerName("model.layers.x.weight").has_value());
  CHECK_FALSE(ParseLayerName("model.layers.99999999999999999999.weight").has_value());
}

TEST_CASE("an expert's module has a mixture, a projection and a number") {
  const auto expert = ParseExpertName("model.layers.12.mlp.experts.3.up_proj");
  REQUIRE(expert.has_value());
  CHECK(expert->mixture == "model.layers.12.mlp.experts");
  CHECK(expert->projection == "up_proj");
  CHECK(expert->index == 3);
  CHECK_FALSE(expert->stored_stacked);
  const auto stacked = ParseExpertName("experts.gate_up_proj.17");
  REQUIRE(stacked.has_value());
  CHECK(stacked->mixture == "experts");
  CHECK(stacked->projection == "gate_up_proj");
  CHECK(stacked->index == 17);
  CHECK(stacked->stored_stacked);
  for (const std::string_view other :
       {"", "experts", "experts.3", "experts.up_proj", "mlp.experts.3.mlp.up_proj",
        "mlp.shared_experts.3.up_proj", "mlp.experts.x.up_proj", "mlp.up_proj",
        "mlp.experts.99999999999999999999.up_proj"}) {
    INFO(other);
    CHECK_FALSE(ParseExpertName(other).has_value());
  }
}

TEST_CASE("the lists that decoders have") {
  CHECK(IsDecoderModule("model.layers.0.mlp.up_proj"));
  CHECK(IsDecoderModule("transformer.h.3.attn.c_attn"));
  CHECK_FALSE(IsDecoderModule("visual.blocks.0.attn.qkv"));
  CHECK_FALSE(IsDecoderModule("lm_head"));
}

}  // namespace
}  // namespace prepack::testing
