// Formats name modules in different ways: by exact names, by patterns, by parts of names. Lists are
// written so that all loaders of a format understand them alike; patterns are exact, too: they
// match no module of the model that is of another kind.

#include "prepack/packed/checkpoint_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "prepack/base/version.h"
#include "prepack/container/json_fields.h"
#include "prepack/io/output_folder.h"
#include "prepack/layouts/table.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kWeightSuffix = ".weight";

bool IsOneOfGroups(const Scheme& scheme) {
  return scheme.granularity == Granularity::kGroup;
}

// -1 says that there is one group for all input channels.
Json GroupSizeOrMinusOne(const Scheme& scheme) {
  return IsOneOfGroups(scheme) ? Json(scheme.group_size) : Json(-1);
}

bool IsEmbedding(std::string_view module) {
  const std::string_view name = LastPart(module);
  return name.find("embed") != std::string_view::npos || name == "wte" || name == "wpe";
}

std::string EscapedForRegex(std::string_view text) {
  constexpr std::string_view kSpecial = R"(.^$*+?()[]{}|\)";
  std::string escaped;
  for (const char c : text) {
    if (kSpecial.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// The role as a pattern: any number where it has one.
std::string PatternOfRole(std::string_view role) {
  std::string pattern;
  while (true) {
    const size_t dot = role.find('.');
    const std::string_view part = role.substr(0, dot);
    pattern += part == "#" ? std::string(R"(\d+)") : EscapedForRegex(part);
    if (dot == std::string_view::npos) return pattern;
    pattern += R"(\.)";
    role.remove_prefix(dot + 1);
  }
}

// The modules of each kind as patterns: one for all modules of a role where those are of one kind,
// else one for each module.
class Patterns {
 public:
  static constexpr size_t kPlain = SIZE_MAX;

  Patterns(std::span<const PackedScheme> modules, const ModuleKinds& kinds,
           const std::vector<std::string>& plain) {
    for (size_t i = 0; i < modules.size(); ++i) Add(modules[i].module, kinds.NumberOf(i));
    for (const std::string& module : plain) Add(module, kPlain);
  }

  std::vector<std::string> Of(size_t kind) const {
    std::vector<std::string> patterns;
    for (const auto& [role, members] : roles_) {
      const bool alike =
          std::ranges::all_of(members, [&](const auto& member) { return member.second == kind; });
      if (alike) {
        patterns.push_back(PatternOfRole(role));
        continue;
      }
      for (const auto& [module, of_kind] : members) {
        if (of_kind == kind) patterns.push_back(EscapedForRegex(module));
      }
    }
    return patterns;
  }

 private:
  void Add(std::string_view module, size_t kind) {
    roles_[RoleOf(module)].emplace_back(module, kind);
  }

  std::map<std::string, std::vector<std::pair<std::string_view, size_t>>> roles_;
};

// compressed-tensors. Groups refuse a key that they do not know, and older releases know fewer: so
// what is null is left out.

std::string_view FormatOf(std::string_view layout) {
  return layout.substr(layout.find('/') + 1);
}

std::string_view StrategyOf(const PackedScheme& module) {
  if (module.layout == kCtNvfp4.id) return "tensor_group";
  return GranularityName(module.scheme->granularity);
}

bool HasExponentScales(const PackedScheme& module) {
  return module.layout == kCtMxfp4.id || module.layout == kCtMxfp8.id;
}

Json CtWeights(const PackedScheme& module) {
  const Scheme& scheme = *module.scheme;
  Json weights = {{"num_bits", scheme.bits},
                  {"type", IsFloatCode(scheme.code) ? "float" : "int"},
                  {"symmetric", scheme.symmetric},
                  {"strategy", StrategyOf(module)},
                  {"dynamic", false}};
  if (scheme.granularity == Granularity::kGroup) weights["group_size"] = scheme.group_size;
  if (scheme.granularity == Granularity::kBlock) {
    weights["block_structure"] = {scheme.scale_rows, scheme.group_size};
  }
  if (module.act_order) weights["actorder"] = "group";
  if (HasExponentScales(module)) weights["scale_dtype"] = "torch.uint8";
  return weights;
}

Json CtActivations(const PackedScheme& module) {
  const ActivationScheme& activations = module.scheme->activations;
  if (activations.type == ActivationType::kNone) return nullptr;
  const bool local = module.layout == kCtNvfp4.id;
  Json json = {
      {"num_bits", activations.bits},
      {"type", activations.type == ActivationType::kFloat ? "float" : "int"},
      {"symmetric", activations.symmetric},
      {"strategy", local ? "tensor_group" : ActivationGranularityName(activations.granularity)},
      {"dynamic", local ? Json("local") : Json(activations.dynamic)}};
  if (activations.granularity == ActivationGranularity::kGroup) {
    json["group_size"] = activations.group_size;
  }
  if (HasExponentScales(module)) json["scale_dtype"] = "torch.uint8";
  return json;
}

Json CtGroup(const PackedScheme& module) {
  return {{"targets", Json::array()},
          {"weights", CtWeights(module)},
          {"input_activations", CtActivations(module)},
          {"output_activations", nullptr},
          {"format", FormatOf(module.layout)}};
}

// One group is for all linear layers. The head is one that vLLM does not take for such.
Json CtTargetsOfAll(std::span<const PackedScheme> modules) {
  Json targets = {"Linear"};
  for (const PackedScheme& module : modules) {
    if (LastPart(module.module) == kHead) targets.push_back(module.module);
  }
  return targets;
}

Json AnchoredPatterns(const std::vector<std::string>& patterns) {
  Json targets = Json::array();
  for (const std::string& pattern : patterns) targets.push_back(fmt::format("re:^{}$", pattern));
  return targets;
}

Json CtQuantization(std::string_view target, std::span<const PackedScheme> modules,
                    const std::vector<std::string>& plain) {
  const ModuleKinds kinds(modules, CtGroup);
  const Patterns patterns(modules, kinds, plain);
  Json groups = Json::object();
  std::set<std::string> formats;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    Json group = kinds.At(kind);
    formats.insert(group.at("format").get<std::string>());
    group["targets"] =
        kinds.size() == 1 ? CtTargetsOfAll(modules) : AnchoredPatterns(patterns.Of(kind));
    groups[fmt::format("group_{}", kind)] = std::move(group);
  }
  // Readers before 0.13 know one format for the whole model only.
  if (target != kCtPacked.target && formats.size() == 1) {
    for (Json& group : groups) group.erase("format");
  }
  return {{"quant_method", "compressed-tensors"},
          {"version", target == kCtPacked.target ? "0.19.0" : "0.17.0"},
          {"format", formats.size() == 1 ? *formats.begin() : "mixed-precision"},
          {"quantization_status", "compressed"},
          {"config_groups", std::move(groups)},
          {"ignore", plain}};
}

// GPTQ.

Json GptqSettings(const PackedScheme& module) {
  return {{"bits", module.scheme->bits},
          {"group_size", GroupSizeOrMinusOne(*module.scheme)},
          {"sym", module.scheme->symmetric},
          {"desc_act", module.act_order}};
}

// vLLM looks for the settings of q_proj under the name of the module that it fuses it into.
std::string WithFusedName(std::string pattern) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kNames = {
      {{"q_proj", "qkv_proj"}, {"gate_proj", "gate_up_proj"}}};
  for (const auto& [name, fused] : kNames) {
    const bool is_name = pattern.size() > name.size() && pattern.ends_with(name) &&
                         pattern[pattern.size() - name.size() - 1] == '.';
    if (!is_name) continue;
    return fmt::format("{}(?:{}|{})", pattern.substr(0, pattern.size() - name.size()), name, fused);
  }
  return pattern;
}

// Rules for single modules: the first that matches counts, and no two match the same module.
Json GptqRules(const ModuleKinds& kinds, const Patterns& patterns) {
  Json rules = Json::object();
  for (const std::string& pattern : patterns.Of(Patterns::kPlain)) {
    rules[fmt::format("-:^{}$", WithFusedName(pattern))] = Json::object();
  }
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    if (kind == kinds.MostCommon()) continue;
    for (const std::string& pattern : patterns.Of(kind)) {
      rules[fmt::format("+:^{}$", WithFusedName(pattern))] = kinds.At(kind);
    }
  }
  return rules;
}

Json GptqQuantization(std::string_view target, std::span<const PackedScheme> modules,
                      const std::vector<std::string>& plain) {
  const ModuleKinds kinds(modules, GptqSettings);
  const bool first = target == kGptqV1.target;
  Json quantization = {{"quant_method", "gptq"}};
  quantization.update(kinds.At(kinds.MostCommon()));
  quantization["checkpoint_format"] = first ? "gptq" : "gptq_v2";
  quantization["pack_dtype"] = "int32";
  quantization["lm_head"] = std::ranges::any_of(
      modules, [](const PackedScheme& module) { return LastPart(module.module) == kHead; });
  quantization["dynamic"] = GptqRules(kinds, Patterns(modules, kinds, plain));
  const bool asymmetric =
      std::ranges::any_of(modules, [](const PackedScheme& m) { return !m.scheme->symmetric; });
  if (first && asymmetric) {
    // GPTQModel asks who wrote it, as others got asymmetric zero points wrong before: 0.9.0 is the
    // first release to store them as they are stored here.
    quantization["meta"] = {{"quantizer", {"gptqmodel:0.9.0"}},
                            {"packer", {fmt::format("prepack:{}", kVersion)}}};
  }
  return quantization;
}

// AWQ.

// Loaders take the names for parts of names: one that is a part of a quantized module's would keep
// that from being loaded.
Json NamesThatAreNoParts(const std::vector<std::string>& plain,
                         std::span<const PackedScheme> modules) {
  Json names = Json::array();
  for (const std::string& name : plain) {
    const auto is_part = [&](const PackedScheme& module) {
      return module.module.find(name) != std::string_view::npos &&
             module.scheme->code != CodeType::kBF16;
    };
    // Only of those right behind it, as they are sorted.
    const auto next = std::ranges::upper_bound(
        modules, name, {}, [](const PackedScheme& module) { return module.module; });
    if (next != modules.end() && is_part(*next)) continue;
    names.push_back(name);
  }
  return names;
}

Json AwqQuantization(std::string_view, std::span<const PackedScheme> modules,
                     const std::vector<std::string>& plain) {
  // Zero points are always stored, as some loaders use them whatever the config says.
  return {{"quant_method", "awq"},
          {"bits", modules.front().scheme->bits},
          {"group_size", GroupSizeOrMinusOne(*modules.front().scheme)},
          {"zero_point", true},
          {"version", "gemm"},
          {"modules_to_not_convert", NamesThatAreNoParts(plain, modules)}};
}

// AutoRound.

// AWQ's form always has zero points, and vLLM reads it on CPUs only where the config says so.
Json AutoRoundSettings(const PackedScheme& module) {
  const bool has_zero_points = module.layout == kAutoRoundAwq.id;
  return {{"bits", module.scheme->bits},
          {"group_size", GroupSizeOrMinusOne(*module.scheme)},
          {"sym", module.scheme->symmetric && !has_zero_points},
          {"data_type", "int"}};
}

// The lists of layers that hold quantized modules: "model.layers".
std::string BlocksOf(std::span<const PackedScheme> modules) {
  std::set<std::string> lists;
  for (const PackedScheme& module : modules) {
    const std::string role = RoleOf(module.module);
    const size_t number = role.find(".#.");
    if (number != std::string::npos) lists.insert(role.substr(0, number));
  }
  std::string text;
  for (const std::string& list : lists) text += (text.empty() ? "" : ",") + list;
  return text;
}

Json AutoRoundQuantization(std::string_view, std::span<const PackedScheme> modules,
                           const std::vector<std::string>& plain) {
  const ModuleKinds kinds(modules, AutoRoundSettings);
  Json extra = Json::object();
  for (const std::string& name : plain) extra[name] = {{"bits", 16}, {"data_type", "float"}};
  for (size_t i = 0; i < modules.size(); ++i) {
    const bool outside = LastPart(modules[i].module) == kHead;
    if (kinds.NumberOf(i) == kinds.MostCommon() && !outside) continue;
    extra[std::string(modules[i].module)] = kinds.At(kinds.NumberOf(i));
  }
  Json quantization = {{"quant_method", "auto-round"}};
  quantization.update(kinds.At(kinds.MostCommon()));
  quantization["packing_format"] = fmt::format("auto_round:{}", FormatOf(modules.front().layout));
  quantization["block_name_to_quantize"] = BlocksOf(modules);
  quantization["extra_config"] = std::move(extra);
  return quantization;
}

// FP8 as transformers has it.

Json Fp8Quantization(std::string_view, std::span<const PackedScheme> modules,
                     const std::vector<std::string>& plain) {
  const Scheme& scheme = *modules.front().scheme;
  const bool blocks = scheme.granularity == Granularity::kBlock;
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", scheme.activations.dynamic ? "dynamic" : "static"},
          {"weight_block_size", blocks ? Json({scheme.scale_rows, scheme.group_size}) : Json()},
          {"modules_to_not_convert", plain}};
}

// MXFP4 of gpt-oss.

Json Mxfp4Quantization(std::string_view, std::span<const PackedScheme>,
                       const std::vector<std::string>& plain) {
  return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", plain}};
}

// ModelOpt.

Json ModelOptAlgorithmOf(const PackedScheme& module) {
  const Scheme& scheme = *module.scheme;
  const bool wide = scheme.activations.type == ActivationType::kNone;
  if (module.layout == kModelOptMxfp8.id) return {{"quant_algo", "MXFP8"}, {"group_size", 32}};
  if (module.layout == kModelOptNvfp4.id) {
    return {{"quant_algo", wide ? "W4A16_NVFP4" : "NVFP4"}, {"group_size", 16}};
  }
  if (scheme.granularity == Granularity::kChannel) {
    return {{"quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"}};
  }
  if (scheme.granularity == Granularity::kBlock) return {{"quant_algo", "FP8_PB_WO"}};
  return {{"quant_algo", "FP8"}};
}

Json ModelOptQuantization(std::string_view, std::span<const PackedScheme> modules,
                          const std::vector<std::string>& plain) {
  const ModuleKinds kinds(modules, ModelOptAlgorithmOf);
  Json quantization = {{"quant_method", "modelopt"}};
  if (kinds.size() == 1) {
    quantization.update(kinds.At(0));
  } else {
    quantization["quant_algo"] = "MIXED_PRECISION";
    Json layers = Json::object();
    for (size_t i = 0; i < modules.size(); ++i) {
      layers[std::string(modules[i].module)] = kinds.At(kinds.NumberOf(i));
    }
    quantization["quantized_layers"] = std::move(layers);
  }
  quantization["ignore"] = plain;
  quantization["producer"] = {{"name", "prepack"}, {"version", kVersion}};
  return quantization;
}

using WriteConfig = Json (*)(std::string_view target, std::span<const PackedScheme> modules,
                             const std::vector<std::string>& plain);

struct ConfigWriter {
  std::string_view target;
  WriteConfig write;
  // Whose scale it is by which keys are cached, in formats that say how they are, in the words of
  // compressed-tensors.
  std::string_view cache_scale = {};
};

constexpr std::array kWriters = {
    ConfigWriter{"compressed-tensors", CtQuantization, "self_attn.k_scale"},
    ConfigWriter{"compressed-tensors-0.17", CtQuantization, "self_attn.k_scale"},
    ConfigWriter{"gptq", GptqQuantization},
    ConfigWriter{"gptq-v2", GptqQuantization},
    ConfigWriter{"awq", AwqQuantization},
    ConfigWriter{"auto-round", AutoRoundQuantization},
    ConfigWriter{"auto-round-v2", AutoRoundQuantization},
    ConfigWriter{"auto-round-awq", AutoRoundQuantization},
    ConfigWriter{"fp8", Fp8Quantization},
    ConfigWriter{"mxfp4", Mxfp4Quantization},
    ConfigWriter{"modelopt", ModelOptQuantization, "k_proj.k_scale"},
};

}  // namespace

bool IsCheckpointTarget(std::string_view target) {
  const Target* found = FindTarget(target);
  return found != nullptr && found->checkpoint;
}

PlainTensors FindPlainTensors(const ManifestRecords& records,
                              std::span<const PackedScheme> modules) {
  std::set<std::string> names;
  PlainTensors plain;
  bool head_is_quantized = false;
  for (const PackedScheme& module : modules) {
    if (module.scheme->code == CodeType::kBF16) {
      names.emplace(module.module);
    } else {
      head_is_quantized |= LastPart(module.module) == kHead;
    }
  }
  records.VisitTensors([&](const TensorRecord& tensor) {
    const bool matrix = tensor.shape.size() == 2 && tensor.tensor.ends_with(kWeightSuffix);
    const std::string_view module = ModuleOf(tensor.tensor);
    if (matrix && !IsEmbedding(module)) names.emplace(module);
    for (const std::string_view scale : {"self_attn.k_scale", "k_proj.k_scale"}) {
      if (tensor.tensor.ends_with(scale)) plain.cache_scale = scale;
    }
  });
  const bool has_head =
      std::ranges::any_of(names, [](const std::string& name) { return LastPart(name) == kHead; });
  // Where the head is the embedding, it has no tensor, but loaders make a layer of it all the same.
  if (!has_head && !head_is_quantized) names.emplace(kHead);
  plain.modules.assign(names.begin(), names.end());
  return plain;
}

std::optional<Json> CheckpointQuantization(std::string_view target, const Json& source,
                                           std::span<const PackedScheme> modules,
                                           const PlainTensors& plain) {
  const auto* const writer = std::ranges::find(kWriters, target, &ConfigWriter::target);
  std::vector<PackedScheme> quantized;
  std::ranges::copy_if(modules, std::back_inserter(quantized), [](const PackedScheme& module) {
    return module.scheme->code != CodeType::kBF16;
  });
  if (writer == kWriters.end() || quantized.empty()) return std::nullopt;
  Json quantization = writer->write(target, quantized, plain.modules);
  const Json* cache = JsonMember(source, "kv_cache_scheme");
  const bool says_cache = !writer->cache_scale.empty() && writer->cache_scale == plain.cache_scale;
  if (says_cache && cache != nullptr && cache->is_object()) {
    quantization["kv_cache_scheme"] = *cache;
  }
  return quantization;
}

std::set<std::string> CarriedFiles(const Checkpoint& checkpoint, std::string_view target) {
  std::set<std::string> names(checkpoint.side_files().begin(), checkpoint.side_files().end());
  names.erase(std::string(kManifestName));  // of a source that prepack made
  if (!IsCheckpointTarget(target)) return names;
  for (const char* config : {"quantize_config.json", "quantization_config.json",
                             "quant_config.json", "hf_quant_config.json"}) {
    names.erase(config);
  }
  return names;
}

}  // namespace prepack
