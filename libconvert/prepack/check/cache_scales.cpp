// The scales of the key and value caches, in the names of all writers:
//
//     self_attn.k_scale, .v_scale              compressed-tensors: per tensor, or one per head
//     self_attn.k_proj.k_scale, v_proj.v_scale ModelOpt; qkv_proj.k_scale where they are merged
//     self_attn.k_proj.output_scale            Quark, and early compressed-tensors, where layers
//                                              do not round their outputs
//     self_attn.kv_scale, qkv_proj.output_scale   one for keys and values, also of other merged
//                                                 projections (kMerged, kLatent)
//
// What becomes of them mirrors vLLM 0.32, model_executor/layers/quantization/kv_cache.py: a scale
// that is not there is 1.0, as is a negative one, and zero or NaN stop it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/check/judgement.h"
#include "prepack/check/model_checks.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

constexpr uint64_t kMostHeads = 4096;  // of one scale

// Projections of keys and values in one (mirrors amd-quark 0.13, quantization/config/template.py).
constexpr std::array<std::string_view, 6> kMerged = {"qkv_proj",        "kv_proj", "c_attn",
                                                     "query_key_value", "Wqkv",    "wkv"};
// Of these the cache holds something else, which runtimes often do not scale.
constexpr std::array<std::string_view, 2> kLatent = {"kv_a_proj_with_mqa", "kv_b_proj"};

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

struct CacheScale {
  const StoredTensor* tensor = nullptr;
  bool keys = false;
  bool values = false;
};

// Which caches the scale is for: by its own name, or by that of the projection whose output it
// scales.
std::optional<CacheScale> AsCacheScale(const StoredTensor& tensor, bool outputs_are_quantized) {
  const std::string_view name = LastPart(tensor.name);
  const std::string_view module = LastPart(ModuleOf(tensor.name));
  CacheScale scale{.tensor = &tensor};
  if (name == "k_scale" || name == "v_scale" || name == "kv_scale") {
    scale.keys = name != "v_scale";
    scale.values = name != "k_scale";
  } else if (name == "output_scale" && !outputs_are_quantized) {
    const bool both = IsOneOf(module, kMerged) || IsOneOf(module, kLatent);
    scale.keys = both || module == "k_proj";
    scale.values = both || module == "v_proj";
  }
  if (!scale.keys && !scale.values) return std::nullopt;
  return scale;
}

// The attention that a tensor is in: "self_attn" of "self_attn.k_proj.weight".
std::string_view AttentionOf(std::string_view below) {
  const std::string_view module = ModuleOf(below);
  const std::string_view last = LastPart(module);
  return last.ends_with("_proj") && last != module ? ModuleOf(module) : module;
}

// Quark's older way: a rule for the projection of the keys, which quantizes its outputs.
bool QuantizesKeys(const Json& config) {
  const Json* rules = JsonMember(config, "layer_quant_config");
  if (rules == nullptr || !rules->is_object()) return false;
  return std::ranges::any_of(rules->items(), [](const auto& rule) {
    const auto ends = [&](std::string_view name) { return rule.key().ends_with(name); };
    const bool of_keys =
        ends("k_proj") || std::ranges::any_of(kMerged, ends) || std::ranges::any_of(kLatent, ends);
    return of_keys && rule.value().is_object() &&
           JsonMember(rule.value(), "output_tensors") != nullptr;
  });
}

// What declares that caches are quantized, and with stored scales; empty: nothing does.
std::string DeclaredIn(const std::string& where, const Json& config) {
  const Json* scheme = JsonMember(config, "kv_cache_scheme");
  if (scheme != nullptr && scheme->is_object()) {
    const Json* dynamic = JsonMember(*scheme, "dynamic");
    const bool computed = dynamic != nullptr && dynamic->is_boolean() && dynamic->get<bool>();
    return computed ? "" : where + ".kv_cache_scheme";
  }
  if (scheme != nullptr && scheme->is_string()) return where + ".kv_cache_scheme";
  const Json* algorithm = JsonMember(config, "kv_cache_quant_algo");
  if (algorithm != nullptr && algorithm->is_string()) return where + ".kv_cache_quant_algo";
  const Json* layers = JsonMember(config, "kv_cache_quant_config");
  if (layers != nullptr && layers->is_object() && !layers->empty()) {
    return where + ".kv_cache_quant_config";
  }
  const Json* exported = JsonMember(config, "export");
  const Json* groups = exported == nullptr || !exported->is_object()
                           ? nullptr
                           : JsonMember(*exported, "kv_cache_group");
  if (groups != nullptr && groups->is_array() && !groups->empty()) {
    return where + ".export.kv_cache_group";
  }
  return QuantizesKeys(config) ? where + ".layer_quant_config" : "";
}

// Whether layers round what they compute, so that their output_scale is not that of a cache:
// compressed-tensors, in a group without kv_cache_scheme beside it.
bool QuantizesOutputs(const std::vector<QuantizationConfig>& configs) {
  return std::ranges::any_of(configs, [](const QuantizationConfig& config) {
    const Json* groups = JsonMember(*config.fields, "config_groups");
    if (groups == nullptr || !groups->is_object()) return false;
    if (!DeclaredIn(config.where, *config.fields).empty()) return false;
    return std::ranges::any_of(*groups, [](const Json& group) {
      const Json* outputs = group.is_object() ? JsonMember(group, "output_activations") : nullptr;
      return outputs != nullptr && outputs->is_object();
    });
  });
}

std::string FindDeclaration(const std::vector<QuantizationConfig>& configs) {
  for (const QuantizationConfig& config : configs) {
    if (std::string found = DeclaredIn(config.where, *config.fields); !found.empty()) return found;
  }
  return "";
}

// Layers of one list, by the attention in them.
using Layers = std::map<std::pair<std::string_view, std::string_view>, std::set<uint64_t>>;

class CacheScales {
 public:
  CacheScales(const Checkpoint& checkpoint, bool outputs_are_quantized,
              std::vector<Finding>& findings)
      : checkpoint_(checkpoint), findings_(findings) {
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      const std::optional<CacheScale> scale = AsCacheScale(tensor, outputs_are_quantized);
      const std::string_view projection = LastPart(ModuleOf(tensor.name));
      const bool is_cached = projection == "k_proj" || IsOneOf(projection, kMerged);
      if (!scale && !is_cached) continue;  // of most tensors, the name need not be parsed
      const auto layer = ParseLayerName(tensor.name);
      if (!layer || IsExpert(ModuleOf(tensor.name))) continue;
      const std::pair place(layer->list, AttentionOf(layer->below));
      if (is_cached) cached_[place].insert(layer->index);
      if (!scale) continue;
      scales_.push_back(*scale);
      if (scale->keys) keys_[place].insert(layer->index);
      if (scale->values) values_[place].insert(layer->index);
    }
  }

  void CheckPresence(const std::string& declared) {
    if (scales_.empty() && !declared.empty() && !cached_.empty()) {
      findings_.push_back(MakeFinding("cache-scale-missing", declared,
                                      "the caches of keys and values are to be quantized, but no "
                                      "layer has a scale for them"));
    }
    if (!scales_.empty() && declared.empty()) {
      findings_.push_back(
          MakeFinding("cache-undeclared", scales_.front().tensor->name,
                      fmt::format("{} scales for the caches of keys and values are stored, but the "
                                  "config does not say that they are quantized",
                                  scales_.size())));
    }
    CheckLayers("keys", keys_);
    CheckLayers("values", values_);
  }

  Status CheckValues() {
    std::map<std::string, std::vector<float>> peers;  // by role: those of all heads of all layers
    std::vector<std::vector<float>> values_of;        // of each scale
    for (const CacheScale& scale : scales_) {
      PREPACK_TRY_ASSIGN(std::vector<float> values, CheckValuesOf(*scale.tensor));
      std::vector<float>& of_role = peers[RoleOf(scale.tensor->name)];
      of_role.insert(of_role.end(), values.begin(), values.end());
      values_of.push_back(std::move(values));
    }
    for (auto& [role, values] : peers) std::ranges::sort(values);
    for (size_t i = 0; i < scales_.size(); ++i) {
      const StoredTensor& tensor = *scales_[i].tensor;
      CheckPeers(tensor, values_of[i], peers[RoleOf(tensor.name)]);
    }
    return {};
  }

 private:
  void CheckLayers(std::string_view what, const Layers& having) {
    for (const auto& [place, layers] : having) {
      const auto all = cached_.find(place);
      if (all == cached_.end()) continue;
      std::vector<uint64_t> lacking;
      std::ranges::set_difference(all->second, layers, std::back_inserter(lacking));
      if (lacking.empty()) continue;
      const MissingNumbers missing{
          .count = lacking.size(),
          .first = {lacking.begin(), lacking.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                           lacking.size(), kShownNumbers))}};
      findings_.push_back(
          MakeFinding("cache-scale-missing",
                      fmt::format("{}.{}.{}", place.first, lacking.front(), place.second),
                      fmt::format("no scale for the cache of {} in {} of {} layers: {}", what,
                                  missing.count, all->second.size(), ShowMissing(missing))));
    }
  }

  // One, or one for each head; empty if they are not sound.
  Result<std::vector<float>> CheckValuesOf(const StoredTensor& tensor) {
    uint64_t count = 1;
    for (const uint64_t dimension : tensor.shape) count *= std::min(dimension, kMostHeads + 1);
    const bool is_float =
        tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
    if (!is_float || count == 0 || count > kMostHeads) {
      findings_.push_back(MakeFinding(
          "cache-scale-bad", tensor.name,
          fmt::format("not a scale of a cache (found {} {}, expected a float for the layer or for "
                      "each head)",
                      DTypeName(tensor.dtype), ShowShape(tensor.shape))));
      return std::vector<float>();
    }
    std::vector<float> values(count);
    PREPACK_TRY(ReadFloats(checkpoint_, tensor, 0, values));
    const auto bad =
        std::ranges::find_if(values, [](float v) { return !(v > 0) || std::isinf(v); });
    if (bad == values.end()) return values;
    findings_.push_back(MakeFinding("cache-scale-bad", tensor.name,
                                    fmt::format("{} is {}, expected a positive number",
                                                NameOf(values, bad - values.begin()), *bad)));
    return std::vector<float>();
  }

  static std::string NameOf(const std::vector<float>& values, std::ptrdiff_t head) {
    return values.size() == 1 ? "the scale of a cache"
                              : fmt::format("the scale of head {} of a cache", head);
  }

  // `peers`: ascending.
  void CheckPeers(const StoredTensor& tensor, const std::vector<float>& values,
                  const std::vector<float>& peers) {
    if (values.empty() || peers.size() < kMinSizePeers) return;
    const double median = peers[peers.size() / 2];
    const auto odd = std::ranges::find_if(values, [&](double value) {
      return value >= median * kPeerCacheScale || value * kPeerCacheScale <= median;
    });
    if (odd == values.end()) return;
    findings_.push_back(
        MakeFinding("cache-scale-bad", tensor.name,
                    fmt::format("{} is {:.3g}, but the median of its {} peers is {:.3g}",
                                NameOf(values, odd - values.begin()), *odd, peers.size(), median)));
  }

  const Checkpoint& checkpoint_;
  std::vector<Finding>& findings_;
  std::vector<CacheScale> scales_;
  Layers keys_;
  Layers values_;
  Layers cached_;  // those with a projection of keys
};

}  // namespace

Status CheckCacheScales(const Checkpoint& checkpoint, bool read_data,
                        std::vector<Finding>& findings) {
  PREPACK_TRY_ASSIGN(const std::vector<QuantizationConfig> configs,
                     FindQuantizationConfigs(checkpoint));
  CacheScales scales(checkpoint, QuantizesOutputs(configs), findings);
  scales.CheckPresence(FindDeclaration(configs));
  return read_data ? scales.CheckValues() : Status();
}

}  // namespace prepack
