#include "prepack/check/missing_modules.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "check/check_run.h"
#include "prepack/formats/model_parts.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// Names of modules, each of which becomes one tiny tensor.
using Modules = std::vector<std::string>;

// Adds LIST.LAYER.BLOCK.NAME for each layer and name.
void Add(Modules& modules, const std::string& list, const std::vector<int>& layers,
         const std::string& block, const std::vector<std::string>& names) {
  for (const int layer : layers) {
    for (const std::string& name : names) {
      modules.push_back(fmt::format("{}.{}.{}{}", list, layer, block, name));
    }
  }
}

const std::string kLayers = "model.layers";
const std::vector<std::string> kAttention = {"q_proj", "k_proj", "v_proj", "o_proj"};
const std::vector<std::string> kMlp = {"gate_proj", "up_proj", "down_proj"};

std::vector<int> Range(int first, int end) {
  std::vector<int> layers;
  for (int layer = first; layer < end; ++layer) layers.push_back(layer);
  return layers;
}

Modules Decoder(int layers) {
  Modules modules = {"model.embed_tokens", "model.norm"};
  Add(modules, kLayers, Range(0, layers), "self_attn.", kAttention);
  Add(modules, kLayers, Range(0, layers), "mlp.", kMlp);
  Add(modules, kLayers, Range(0, layers), "", {"input_layernorm", "post_attention_layernorm"});
  return modules;
}

void Remove(Modules& modules, const std::string& prefix) {
  const size_t gone =
      std::erase_if(modules, [&](const std::string& module) { return module.starts_with(prefix); });
  REQUIRE(gone > 0);
}

std::vector<Finding> Findings(const Modules& modules, const Json& config = Json::object()) {
  TestCheckpoint stored;
  stored.config = config;
  for (const std::string& module : modules) {
    stored.tensors.push_back({module + ".weight", "BF16", {1}, Hex("80 3f")});
  }
  const TempFolder folder;
  stored.Write(folder.path());
  const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
  std::vector<Finding> findings;
  CheckMissingModules(checkpoint, findings);
  return findings;
}

// "id where: message" of the only finding, or of all of them.
std::string FindingLines(const std::vector<Finding>& findings) {
  std::string lines;
  for (const Finding& finding : findings) {
    if (!lines.empty()) lines += "; ";
    lines += std::string(finding.id) + " " + finding.where + ": " + finding.message;
    if (finding.more > 0) lines += " (and " + std::to_string(finding.more) + " more)";
  }
  return lines;
}

TEST_CASE("A whole model misses nothing") {
  CHECK(FindingLines(Findings(Decoder(8))).empty());
}

TEST_CASE("A module that one layer lacks is missing") {
  Modules modules = Decoder(8);
  Remove(modules, "model.layers.3.mlp.up_proj");
  CHECK(FindingLines(Findings(modules)) ==
        "module-missing model.layers.3.mlp: lacks up_proj, which 7 of 8 layers have");
  modules = Decoder(8);
  Remove(modules, "model.layers.7.self_attn.q_proj");
  Remove(modules, "model.layers.7.mlp.gate_proj");
  Remove(modules, "model.layers.7.mlp.up_proj");
  CHECK(FindingLines(Findings(modules)) ==
        "module-missing model.layers.7.mlp: lacks gate_proj, up_proj, which 7 of 8 layers have; "
        "module-missing model.layers.7.self_attn: lacks q_proj, which 7 of 8 layers have");
}

TEST_CASE("A block or a norm that one layer lacks is missing") {
  Modules modules = Decoder(8);
  Remove(modules, "model.layers.5.mlp.");
  CHECK(FindingLines(Findings(modules)) ==
        "module-missing model.layers.5: lacks mlp, which 7 of 8 layers have");
  modules = Decoder(8);
  Remove(modules, "model.layers.5.input_layernorm");
  CHECK(FindingLines(Findings(modules)) ==
        "module-missing model.layers.5: lacks input_layernorm, which 7 of 8 layers have");
}

TEST_CASE("Several layers that lack the same are one finding") {
  Modules modules = Decoder(8);
  Remove(modules, "model.layers.2.mlp.down_proj");
  Remove(modules, "model.layers.6.mlp.down_proj");
  CHECK(FindingLines(Findings(modules)) ==
        "module-missing model.layers.2.mlp: lacks down_proj, which 6 of 8 layers have (and 1 "
        "more)");
}

TEST_CASE("What many layers lack is only irregular") {
  Modules modules = Decoder(8);
  for (const char* layer : {"0", "2", "4"}) {
    Remove(modules, std::string("model.layers.") + layer + ".mlp.down_proj");
  }
  CHECK(FindingLines(Findings(modules)) ==
        "module-irregular model.layers.0.mlp: lacks down_proj, which 5 of 8 layers have (and 2 "
        "more)");
  // Of half of the layers nobody can say what is usual.
  Remove(modules, "model.layers.6.mlp.down_proj");
  CHECK(FindingLines(Findings(modules)).empty());
}

TEST_CASE("Modules of all experts of a layer can be missing") {
  Modules modules;
  for (const char* expert : {"0.", "1."}) {
    Add(modules, kLayers, Range(0, 4), std::string("mlp.experts.") + expert, kMlp);
  }
  Add(modules, kLayers, Range(0, 4), "mlp.", {"gate"});
  CHECK(FindingLines(Findings(modules)).empty());
  Remove(modules, "model.layers.1.mlp.experts.0.up_proj");
  CHECK(FindingLines(Findings(modules)).empty());  // experts that differ are another check's
  Remove(modules, "model.layers.1.mlp.experts.1.up_proj");
  CHECK(FindingLines(Findings(modules)) ==
        "module-missing model.layers.1.mlp.experts.*: lacks up_proj, which 3 of 4 layers have");
  Remove(modules, "model.layers.2.mlp.gate");
  CHECK(FindingLines(Findings(modules)).find("model.layers.2.mlp: lacks gate, ") !=
        std::string::npos);
}

TEST_CASE("Layers that have something else instead are as they should be") {
  Modules hybrid = {"model.embed_tokens"};
  Add(hybrid, kLayers, {0, 1, 2, 4, 5, 6}, "linear_attn.", {"in_proj_qkvz", "conv1d", "out_proj"});
  Add(hybrid, kLayers, {3, 7}, "self_attn.", kAttention);
  Add(hybrid, kLayers, Range(0, 8), "mlp.", kMlp);
  CHECK(FindingLines(Findings(hybrid)).empty());

  Modules dense_first;
  Add(dense_first, kLayers, {0}, "mlp.", kMlp);
  Add(dense_first, kLayers, Range(1, 8), "mlp.", {"gate"});
  Add(dense_first, kLayers, Range(1, 8), "mlp.experts.0.", kMlp);
  Add(dense_first, kLayers, Range(1, 8), "mlp.shared_experts.", kMlp);
  CHECK(FindingLines(Findings(dense_first)).empty());

  const std::string list = "language_model.model.layers";
  Modules cross;
  Add(cross, list, {0, 1, 2, 4, 5, 6, 7}, "self_attn.", kAttention);
  Add(cross, list, {3}, "cross_attn.",
      {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"});
  Add(cross, list, Range(0, 8), "mlp.", kMlp);
  CHECK(FindingLines(Findings(cross)).empty());

  // More in a few layers: a bias of positions, a layer that predicts further tokens.
  Modules more = Decoder(8);
  Add(more, kLayers, {0}, "self_attn.", {"relative_attention_bias"});
  Add(more, kLayers, {7}, "", {"eh_proj", "enorm", "hnorm"});
  CHECK(FindingLines(Findings(more)).empty());
}

TEST_CASE("Layers beyond num_hidden_layers are not compared") {
  Modules modules = Decoder(8);
  Remove(modules, "model.layers.7.mlp.up_proj");
  CHECK(FindingLines(Findings(modules, {{"num_hidden_layers", 7}})).empty());
  CHECK_FALSE(FindingLines(Findings(modules, {{"num_hidden_layers", 8}})).empty());
  CHECK_FALSE(
      FindingLines(Findings(modules, {{"text_config", {{"num_hidden_layers", 8}}}})).empty());
}

TEST_CASE("What all layers of one kind lack is as it should be") {
  Modules modules = Decoder(8);
  Remove(modules, "model.layers.3.self_attn.v_proj");
  Remove(modules, "model.layers.7.self_attn.v_proj");
  const std::string message =
      "module-missing model.layers.3.self_attn: lacks v_proj, which 6 of 8 layers have (and 1 "
      "more)";
  CHECK(FindingLines(Findings(modules)) == message);
  Json types = Json::array();
  for (int layer = 0; layer < 8; ++layer) types.push_back(layer % 4 == 3 ? "full" : "sliding");
  const std::vector<Finding> kinds = Findings(modules, {{"layer_types", types}});
  INFO(FindingLines(kinds));
  // Still a query without its value, which only the kinds do not explain.
  REQUIRE(kinds.size() == 1);
  CHECK(kinds[0].id == "module-partner-missing");
  types[3] = "sliding";
  CHECK(FindingLines(Findings(modules, {{"layer_types", types}}))
            .find("module-missing model.layers.3") == 0);
}

TEST_CASE("Shared keys and values are a note") {
  Modules modules = Decoder(8);
  for (const char* layer : {"6", "7"}) {
    for (const char* name : {"k_proj", "v_proj"}) {
      Remove(modules, std::string("model.layers.") + layer + ".self_attn." + name);
    }
  }
  CHECK(FindingLines(Findings(modules, {{"num_kv_shared_layers", 0}})).find("module-missing ") ==
        0);
  CHECK(FindingLines(Findings(modules, {{"num_kv_shared_layers", 2}})) ==
        "module-shared model.layers.6.self_attn: lacks k_proj, v_proj, which 6 of 8 layers have; "
        "config.json says that they are shared (and 1 more)");
  // Also where more layers share than have their own.
  for (const char* layer : {"1", "2", "3", "4", "5"}) {
    for (const char* name : {"k_proj", "v_proj"}) {
      Remove(modules, std::string("model.layers.") + layer + ".self_attn." + name);
    }
  }
  CHECK(FindingLines(Findings(modules, {{"text_config", {{"num_kv_shared_layers", 7}}}})).empty());
  // The query and the output are no part of that.
  Remove(modules, "model.layers.5.self_attn.q_proj");
  CHECK(FindingLines(Findings(modules, {{"num_kv_shared_layers", 7}})).find("lacks q_proj") !=
        std::string::npos);
}

TEST_CASE("Keys that are values are a note") {
  Modules modules = Decoder(8);
  Remove(modules, "model.layers.3.self_attn.v_proj");
  CHECK(Findings(modules, {{"attention_k_eq_v", true}}).at(0).id == "module-shared");
  CHECK(Findings(modules, {{"attention_k_eq_v", false}}).at(0).id == "module-missing");
}

TEST_CASE("Projections without partners are suspect where no other layer has them") {
  const auto alone = [](const std::vector<std::string>& names) {
    Modules modules;
    Add(modules, kLayers, {0, 1}, "block.", names);
    return FindingLines(Findings(modules));
  };
  CHECK(
      alone({"gate_proj", "down_proj"}) ==
      "module-partner-missing model.layers.0.block: has down_proj, gate_proj, but no up_proj (and "
      "1 more)");
  CHECK(alone({"q_proj", "v_proj", "o_proj"}).find("but no k_proj") != std::string::npos);
  CHECK(alone({"q_proj", "k_proj", "o_proj"}).find("but no v_proj") != std::string::npos);
  CHECK(alone({"q_proj", "k_proj", "v_proj"}).find("but no o_proj") != std::string::npos);
  CHECK(alone({"k_proj", "v_proj", "o_proj"}).find("but no q_proj") != std::string::npos);
  // Latent attention, fused projections, MLPs without gate.
  CHECK(alone({"q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}).empty());
  CHECK(alone({"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}).empty());
  CHECK(alone({"q_proj", "kv_proj", "out_proj"}).empty());
  CHECK(alone({"qkv_proj", "o_proj"}).empty());
  CHECK(alone({"up_proj", "down_proj"}).empty());
  CHECK(alone({"gate_up_proj", "down_proj"}).empty());
}

TEST_CASE("Layers that follow no pattern are not compared, and long lists are cut") {
  Modules modules = Decoder(8);
  std::vector<std::string> many;
  many.reserve(20);
  for (int i = 0; i < 20; ++i) many.push_back(fmt::format("part{:02}", i));
  Add(modules, kLayers, Range(1, 8), "mlp.", many);
  CHECK(FindingLines(Findings(modules)).find("part06, part07, …, which 7 of 8 layers have") !=
        std::string::npos);
  Modules odd = Decoder(200);
  for (int layer = 0; layer < 100; ++layer) {
    Add(odd, kLayers, {layer}, "mlp.", {fmt::format("part{}", layer)});
  }
  Remove(odd, "model.layers.150.mlp.up_proj");
  // Only the projection itself tells.
  CHECK(FindingLines(Findings(odd)) ==
        "module-partner-missing model.layers.150.mlp: has down_proj, gate_proj, but no up_proj");
}

TEST_CASE("Stages of a vision tower are not layers of one kind") {
  Modules modules = Decoder(4);
  for (const int stage : {0, 1, 2, 3}) {
    const std::string list = "vision.layers." + std::to_string(stage) + ".blocks";
    Add(modules, list, {0, 1}, "attn.", {"qkv", "proj"});
    if (stage < 3) modules.push_back("vision.layers." + std::to_string(stage) + ".downsample.norm");
  }
  CHECK(FindingLines(Findings(modules)).empty());
  // Elsewhere than in the decoder, architectures are less regular.
  Remove(modules, "vision.layers.0.blocks.1.attn.proj");
  CHECK(FindingLines(Findings(modules)).empty());
  Add(modules, "vision.layers.0.blocks", {2, 3, 4}, "attn.", {"qkv", "proj"});
  CHECK(FindingLines(Findings(modules))
            .find("module-irregular vision.layers.0.blocks.1.attn: lacks proj") == 0);
}

TEST_CASE("Layers that a search of architectures made may lack blocks") {
  Modules modules = Decoder(8);
  Remove(modules, "model.layers.5.self_attn.");
  CHECK(FindingLines(Findings(modules, {{"block_configs", Json::array()}})).empty());
  Remove(modules, "model.layers.3.mlp.up_proj");
  CHECK(FindingLines(Findings(modules, {{"block_configs", Json::array()}})) ==
        "module-missing model.layers.3.mlp: lacks up_proj, which 7 of 8 layers have");
}

TEST_CASE("Layers are found by their names") {
  const auto deep = ParseLayerName("model.layers.12.mlp.experts.3.up_proj.weight");
  REQUIRE(deep.has_value());
  CHECK(deep->list == "model.layers");
  CHECK(deep->index == 12);
  CHECK(deep->below == "mlp.experts.3.up_proj.weight");
  CHECK(ParseLayerName("layers.0.wq.weight")->list == "layers");
  CHECK(ParseLayerName("a.layers.1.blocks.2.c")->list == "a.layers.1.blocks");
  for (const char* name : {"", "lm_head.weight", "model.layers", "model.layers.3", "layers..3.a",
                           "model.layers.x.mlp", "model.layers.99999999999999999999.mlp", "..."}) {
    INFO(name);
    CHECK_FALSE(ParseLayerName(name).has_value());
  }
}

}  // namespace
}  // namespace prepack::testing
