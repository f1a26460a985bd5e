#include "llama_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace prepack::bench {
namespace {

constexpr uint64_t kHeadSize = 128;
constexpr uint64_t kQueriesPerKey = 4;

uint64_t Heads(const LlamaShape& shape) {
  return shape.hidden / kHeadSize;
}

uint64_t KeyHeads(const LlamaShape& shape) {
  return std::max<uint64_t>(1, Heads(shape) / kQueriesPerKey);
}

Json Config(const LlamaShape& shape) {
  Json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"dtype", "bfloat16"},
                 {"hidden_act", "silu"},
                 {"hidden_size", shape.hidden},
                 {"intermediate_size", shape.intermediate},
                 {"num_hidden_layers", shape.layers},
                 {"num_attention_heads", Heads(shape)},
                 {"num_key_value_heads", KeyHeads(shape)},
                 {"head_dim", kHeadSize},
                 {"max_position_embeddings", 8192},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 500000.0},
                 {"tie_word_embeddings", false},
                 {"vocab_size", shape.tokens}};
  if (shape.experts != 0) {
    config["architectures"] = {"Qwen3MoeForCausalLM"};
    config["model_type"] = "qwen3_moe";
    config["num_experts"] = shape.experts;
    config["num_experts_per_tok"] = std::min<uint64_t>(8, shape.experts);
    config["moe_intermediate_size"] = shape.intermediate;
  }
  // Layers alone are no model that could be loaded, and a config that named one would be refused.
  if (!shape.embeddings) config.erase("architectures");
  return config;
}

void AddMlp(const std::string& block, const LlamaShape& shape, SampleCheckpoint& checkpoint) {
  for (const char* name : {"gate_proj", "up_proj"}) {
    checkpoint.modules.push_back({block + '.' + name, shape.intermediate, shape.hidden});
  }
  checkpoint.modules.push_back({block + ".down_proj", shape.hidden, shape.intermediate});
}

void AddLayer(const std::string& layer, const LlamaShape& shape, SampleCheckpoint& checkpoint) {
  const uint64_t keys = KeyHeads(shape) * kHeadSize;
  const std::string attention = layer + ".self_attn";
  checkpoint.modules.push_back({attention + ".q_proj", shape.hidden, shape.hidden});
  checkpoint.modules.push_back({attention + ".k_proj", keys, shape.hidden});
  checkpoint.modules.push_back({attention + ".v_proj", keys, shape.hidden});
  checkpoint.modules.push_back({attention + ".o_proj", shape.hidden, shape.hidden});
  if (shape.experts == 0) AddMlp(layer + ".mlp", shape, checkpoint);
  for (uint64_t expert = 0; expert < shape.experts; ++expert) {
    AddMlp(fmt::format("{}.mlp.experts.{}", layer, expert), shape, checkpoint);
  }
  if (shape.experts != 0) {
    for (const char* name : {".q_norm.weight", ".k_norm.weight"}) {
      checkpoint.plain.push_back({attention + name, {kHeadSize}, Content::kNorms});
    }
    checkpoint.plain.push_back({layer + ".mlp.gate.weight", {shape.experts, shape.hidden}});
    checkpoint.ignored.push_back(layer + ".mlp.gate");
  }
  for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
    checkpoint.plain.push_back(
        {fmt::format("{}.{}.weight", layer, name), {shape.hidden}, Content::kNorms});
  }
}

}  // namespace

SampleCheckpoint LlamaCheckpoint(const LlamaShape& shape) {
  SampleCheckpoint checkpoint;
  checkpoint.config = Config(shape);
  for (uint64_t i = 0; i < shape.layers; ++i) {
    AddLayer(fmt::format("model.layers.{}", i), shape, checkpoint);
  }
  checkpoint.plain.push_back({"model.norm.weight", {shape.hidden}, Content::kNorms});
  if (shape.embeddings) {
    checkpoint.plain.push_back({"model.embed_tokens.weight", {shape.tokens, shape.hidden}});
    checkpoint.plain.push_back({"lm_head.weight", {shape.tokens, shape.hidden}});
    checkpoint.ignored.emplace_back("lm_head");
  }
  return checkpoint;
}

namespace {

constexpr uint64_t kOssHeadSize = 64;
constexpr uint64_t kOssHeads = 64;
constexpr uint64_t kOssKeyHeads = 8;
constexpr uint64_t kBlock = 32;

// The tensors of all experts of a layer [N, K], by the name of the leaf.
void AddStack(const std::string& leaf, uint64_t experts, uint64_t n, uint64_t k,
              SampleCheckpoint& checkpoint) {
  const uint64_t groups = k / kBlock;
  checkpoint.plain.push_back(
      {leaf + "_blocks", {experts, n, groups, kBlock / 2}, Content::kCodes, DType::kU8});
  checkpoint.plain.push_back(
      {leaf + "_scales", {experts, n, groups}, Content::kExponents, DType::kU8});
  checkpoint.plain.push_back({leaf + "_bias", {experts, n}});
}

void AddOssLayer(const std::string& layer, const GptOssShape& shape, SampleCheckpoint& checkpoint) {
  constexpr uint64_t kQueries = kOssHeads * kOssHeadSize;
  constexpr uint64_t kKeys = kOssKeyHeads * kOssHeadSize;
  const auto add = [&](const std::string& name, uint64_t n, uint64_t k) {
    checkpoint.plain.push_back({layer + name + ".weight", {n, k}});
    checkpoint.plain.push_back({layer + name + ".bias", {n}});
  };
  add(".self_attn.q_proj", kQueries, shape.hidden);
  add(".self_attn.k_proj", kKeys, shape.hidden);
  add(".self_attn.v_proj", kKeys, shape.hidden);
  add(".self_attn.o_proj", shape.hidden, kQueries);
  checkpoint.plain.push_back({layer + ".self_attn.sinks", {kOssHeads}});
  add(".mlp.router", shape.experts, shape.hidden);
  const std::string experts = layer + ".mlp.experts.";
  AddStack(experts + "gate_up_proj", shape.experts, 2 * shape.intermediate, shape.hidden,
           checkpoint);
  AddStack(experts + "down_proj", shape.experts, shape.hidden, shape.intermediate, checkpoint);
  for (const char* name : {".input_layernorm", ".post_attention_layernorm"}) {
    checkpoint.plain.push_back({layer + name + ".weight", {shape.hidden}, Content::kNorms});
  }
}

}  // namespace

SampleCheckpoint GptOssCheckpoint(const GptOssShape& shape) {
  SampleCheckpoint checkpoint;
  checkpoint.format = StackedMxfp4();
  checkpoint.config = {{"model_type", "gpt_oss"},
                       {"dtype", "bfloat16"},
                       {"hidden_size", shape.hidden},
                       {"intermediate_size", shape.intermediate},
                       {"num_hidden_layers", shape.layers},
                       {"num_local_experts", shape.experts},
                       {"num_experts_per_tok", std::min<uint64_t>(4, shape.experts)},
                       {"head_dim", kOssHeadSize},
                       {"num_attention_heads", kOssHeads},
                       {"num_key_value_heads", kOssKeyHeads},
                       {"swiglu_limit", 7.0},
                       {"tie_word_embeddings", false},
                       {"vocab_size", shape.tokens}};
  for (uint64_t i = 0; i < shape.layers; ++i) {
    AddOssLayer(fmt::format("model.layers.{}", i), shape, checkpoint);
  }
  checkpoint.plain.push_back({"model.norm.weight", {shape.hidden}, Content::kNorms});
  if (shape.embeddings) {
    checkpoint.config["architectures"] = {"GptOssForCausalLM"};
    checkpoint.plain.push_back({"model.embed_tokens.weight", {shape.tokens, shape.hidden}});
    checkpoint.plain.push_back({"lm_head.weight", {shape.tokens, shape.hidden}});
  }
  return checkpoint;
}

}  // namespace prepack::bench
