#include "prepack/formats/model_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/model/module_name.h"

namespace prepack {

std::string_view FindDecoderList(const Checkpoint& checkpoint) {
  std::set<std::string_view> lists;
  std::string_view last;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    // Names are sorted, so that most are of the list before.
    if (!last.empty() && tensor.name.starts_with(last)) continue;
    const auto layer = ParseLayerName(tensor.name);
    if (!layer) continue;
    last = layer->list;
    lists.insert(last);
  }
  for (const std::string_view known : DecoderListNames()) {
    if (const auto list = lists.find(known); list != lists.end()) return *list;
  }
  return lists.size() == 1 ? *lists.begin() : std::string_view();
}

namespace {

constexpr std::array<std::string_view, 10> kEmbeddingNames = {
    "embed_tokens", "word_embeddings", "wte",       "embed_in", "tok_embeddings",
    "embeddings",   "embedding",       "embed_out", "shared",   "embed"};
constexpr std::array<std::string_view, 4> kHeadNames = {"lm_head", "embed_out", "output", "head"};

// Families whose layers normalise the input of the attention and of the MLP, each by itself.
constexpr std::array<std::string_view, 18> kTwoNorms = {
    "llama",      "mistral", "mixtral", "qwen2",       "qwen3",       "qwen2_moe",
    "qwen3_moe",  "phi3",    "granite", "deepseek_v2", "deepseek_v3", "smollm3",
    "ministral3", "olmoe",   "gpt_oss", "seed_oss",    "starcoder2",  "gemma"};

// What leads into an MLP, and what leads out of it.
struct WayOut {
  std::string_view in;
  std::string_view out;
};
constexpr std::array<WayOut, 6> kWaysOut = {{{"up_proj", "down_proj"},
                                             {"gate_proj", "down_proj"},
                                             {"gate_up_proj", "down_proj"},
                                             {"fc1", "fc2"},
                                             {"c_fc", "c_proj"},
                                             {"dense_h_to_4h", "dense_4h_to_h"}}};

template <typename Names>
bool IsOneOf(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool IsNormName(std::string_view name) {
  return (name.find("norm") != std::string_view::npos || name.starts_with("ln_")) &&
         name.find("embed") == std::string_view::npos;
}

std::string Text(const Json& object, std::string_view key) {
  const Json* value = JsonMember(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool Says(const Json& object, std::string_view key, bool wanted) {
  const Json* value = JsonMember(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>() == wanted;
}

bool IsLanguageModel(const Json& config) {
  const Json* names = JsonMember(config, "architectures");
  if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string()) {
    return false;
  }
  const auto& name = names->front().get_ref<const std::string&>();
  return name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration") ||
         name.ends_with("LMHeadModel");
}

class Parts {
 public:
  Parts(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules,
        const QuantizedModel& model)
      : config_(checkpoint.config()),
        text_(LanguageConfig(config_)),
        decoder_(FindDecoderList(checkpoint)) {
    const Json* tokens = JsonMember(text_, "vocab_size");
    if (tokens != nullptr && tokens->is_number_unsigned()) tokens_ = tokens->get<uint64_t>();
    for (const ModuleTensors& module : modules) Add(module, model);
  }

  std::vector<Status> Missing() {
    CheckEnds();
    if (!decoder_.empty() && layers_ != 0) {
      CheckNorms();
      CheckWaysOut();
    }
    return std::move(missing_);
  }

 private:
  void Add(const ModuleTensors& module, const QuantizedModel& model) {
    // With the dot that follows it: a layer may be a module itself.
    const std::string_view full = module.tensors.front().second->name;
    if (const auto layer = ParseLayerName(full.substr(0, module.name.size() + 1))) {
      if (layer->list == decoder_ && !layer->below.empty()) AddToLayers(module, layer->below);
      return;
    }
    const std::string_view name = LastPart(module.name);
    embedding_ = embedding_ || (IsOneOf(kEmbeddingNames, name) && name != "embed_out");
    head_ = head_ || IsOneOf(kHeadNames, name);
    if (IsPerToken(module, model)) ++per_token_;
    // "model.norm" beside "model.layers", or "norm" beside "layers".
    const std::string_view above = decoder_.substr(0, decoder_.size() - LastPart(decoder_).size());
    const bool beside =
        module.name.size() == above.size() + name.size() && module.name.starts_with(above);
    final_norm_ = final_norm_ || (beside && IsNormName(name) && module.Find("weight") != nullptr);
  }

  // `below`: of the layer, with a dot at its end.
  void AddToLayers(const ModuleTensors& module, std::string_view below) {
    ++layers_;
    below.remove_suffix(1);
    if (IsNormName(below.substr(0, below.find('.')))) norms_.insert(std::string(below));
    const size_t dot = module.name.rfind('.');
    AddToBlock(module.name.substr(0, dot), module.name.substr(dot + 1));
    // Stacked experts are tensors of their block: mlp.experts.gate_up_proj, down_proj_scales.
    for (const auto& [suffix, tensor] : module.tensors) AddToBlock(module.name, suffix);
  }

  void AddToBlock(std::string_view block, std::string_view name) {
    const auto leads = [&](const WayOut& way) {
      return name == way.in || name.starts_with(way.out);
    };
    if (std::ranges::any_of(kWaysOut, leads)) blocks_[block].insert(name);
  }

  // A matrix with a row for every token, in floating point or not.
  bool IsPerToken(const ModuleTensors& module, const QuantizedModel& model) const {
    if (tokens_ == 0) return false;
    if (const QuantizedLinear* linear = model.Find(module.name)) return linear->n() >= tokens_;
    const StoredTensor* weight = module.Find("weight");
    return weight != nullptr && weight->shape.size() == 2 && weight->shape[0] >= tokens_;
  }

  void Report(std::string_view where, std::string_view what, std::string_view expected) {
    missing_.push_back(Malformed(where, what)
                           .Expected(expected)
                           .Hint("A shard is missing, or the export was cut short")
                           .Id(FindingId("model-part-missing")));
  }

  void CheckEnds() {
    const bool whole = JsonMember(config_, "tie_word_embeddings") != nullptr;
    const bool untied = Says(whole ? config_ : text_, "tie_word_embeddings", false);
    const bool head = head_ || per_token_ > (embedding_ ? 1U : 0U);
    const bool embedding = embedding_ || per_token_ > (head_ ? 1U : 0U);
    // A tied matrix may be stored under the name of either.
    if (!embedding && (untied || !head)) {
      Report("the embedding", "the model has no embedding",
             "a matrix outside the layers with one row per token, such as model.embed_tokens");
    }
    if (untied && !head) {
      Report("the output head",
             "the model has no output head, and config.json does not tie it to the embedding",
             "a matrix such as lm_head, or tie_word_embeddings");
    }
  }

  void CheckNorms() {
    const std::string family = Text(text_, "model_type");
    if (norms_.empty()) {
      if (family != "olmo") {
        Report(decoder_, "no layer has a norm", "norms such as input_layernorm");
      }
      return;
    }
    const bool behind_blocks = Says(text_, "do_layer_norm_before", false) || family == "openai-gpt";
    if (!final_norm_ && !behind_blocks) {
      Report(decoder_, "the layers have norms, but there is no norm after the last one",
             "a norm such as model.norm beside the layers");
    }
    if (!IsOneOf(kTwoNorms, family)) return;
    for (const std::string_view norm : {"input_layernorm", "post_attention_layernorm"}) {
      if (norms_.contains(std::string(norm))) continue;
      Report(decoder_, fmt::format("no layer has the norm {}", norm),
             fmt::format("one in every layer, as in all models of the family {}", family));
    }
  }

  void CheckWaysOut() {
    for (const auto& [block, names] : blocks_) {
      for (const WayOut& way : kWaysOut) {
        if (!names.contains(way.in)) continue;
        const bool found = std::ranges::any_of(
            names, [&](std::string_view name) { return name.starts_with(way.out); });
        if (found) continue;
        Report(block, fmt::format("the block has {}, but no {}", way.in, way.out),
               fmt::format("{}.{}", block, way.out));
        break;
      }
    }
  }

  const Json& config_;
  const Json& text_;
  const std::string_view decoder_;
  uint64_t tokens_ = 0;     // vocab_size
  bool embedding_ = false;  // a known name is there
  bool head_ = false;
  bool final_norm_ = false;
  uint64_t per_token_ = 0;  // matrices outside of the layers with a row for every token
  uint64_t layers_ = 0;     // modules in the decoder's layers
  std::set<std::string, std::less<>> norms_;  // below a layer of the decoder
  // What of kWaysOut lies directly in each block of the decoder.
  std::map<std::string_view, std::set<std::string_view>> blocks_;
  std::vector<Status> missing_;
};

}  // namespace

std::vector<Status> FindMissingParts(const Checkpoint& checkpoint,
                                     std::span<const ModuleTensors> modules,
                                     const QuantizedModel& model) {
  if (checkpoint.config().empty()) {
    if (checkpoint.side_configs().empty()) return {};
    std::vector<Status> missing;
    missing.push_back(Malformed("config.json", "the folder has no config.json")
                          .Expected("the file that describes the model")
                          .Hint("Copy it from the model that was quantized")
                          .Id(FindingId("model-part-missing")));
    return missing;
  }
  if (!IsLanguageModel(checkpoint.config())) return {};
  return Parts(checkpoint, modules, model).Missing();
}

namespace {

constexpr std::array<SiblingSet, 3> kSets = {{
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"", {"w1", "w3"}},
}};

const SiblingSet* SetThatBeginsWith(std::string_view first) {
  const auto set = std::ranges::find(kSets, first, [](const SiblingSet& s) { return s.names[0]; });
  return set == kSets.end() ? nullptr : &*set;
}

struct Sibling {
  std::string_view name;         // "q_proj"
  std::optional<Scheme> scheme;  // none: not quantized

  std::string Describe() const {
    return fmt::format("{} {}", name, scheme ? DescribeScheme(*scheme) : "not quantized");
  }
};

// Those of the names that are modules of `parent`, which ends in a dot; `near` is the place of one.
std::vector<Sibling> FindSiblings(std::string_view parent, const SiblingSet& set,
                                  std::span<const ModuleTensors> modules,
                                  const QuantizedModel& model, size_t near) {
  std::vector<Sibling> siblings;
  for (const std::string_view name : set.Names()) {
    const std::string full = fmt::format("{}{}", parent, name);
    if (const QuantizedLinear* linear = model.FindNear(near, full)) {
      siblings.push_back({name, WithoutN(linear->scheme())});
      continue;
    }
    const auto module = std::ranges::lower_bound(modules, full, {}, &ModuleTensors::name);
    const bool plain =
        module != modules.end() && module->name == full && module->Find("weight") != nullptr;
    if (plain) siblings.push_back({name, std::nullopt});
  }
  return siblings;
}

bool Differ(const std::vector<Sibling>& siblings) {
  return std::ranges::any_of(
      siblings, [&](const Sibling& sibling) { return sibling.scheme != siblings.front().scheme; });
}

}  // namespace

std::span<const SiblingSet> SiblingSets() {
  return kSets;
}

void ReportFusedSiblings(std::span<const ModuleTensors> modules, QuantizedModel& model) {
  FindingTally findings;
  size_t near = 0;  // the first module of the model that is not before this one
  for (const ModuleTensors& module : modules) {
    while (near < model.modules.size() && model.modules[near]->module() < module.name) ++near;
    const size_t dot = module.name.rfind('.');
    if (dot == std::string_view::npos) continue;
    const SiblingSet* set = SetThatBeginsWith(module.name.substr(dot + 1));
    if (set == nullptr) continue;
    const std::vector<Sibling> siblings =
        FindSiblings(module.name.substr(0, dot + 1), *set, modules, model, near);
    if (!Differ(siblings)) continue;
    std::vector<std::string> states;
    states.reserve(siblings.size());
    for (const Sibling& sibling : siblings) states.push_back(sibling.Describe());
    findings.Add("module-siblings-differ", module.name,
                 fmt::format("layers that runtimes fuse differ: {}", fmt::join(states, ", ")));
  }
  std::ranges::move(findings.Take(), std::back_inserter(model.findings));
}

}  // namespace prepack
