// config.json of a packed folder: the source's text with one member replaced. The rest is copied as
// text, not parsed and printed again, which would change numbers (-0, integers beyond 64 bits) and
// the order of keys.

#include "prepack/packed/output_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/container/json.h"
#include "prepack/container/json_writer.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/packed/checkpoint_config.h"

namespace prepack {
namespace {

bool IsPerGroup(const Scheme& scheme) {
  return scheme.granularity == Granularity::kGroup || scheme.granularity == Granularity::kBlock;
}

Json Summary(const PackedScheme& module) {
  return {{"layout", module.layout},
          {"scheme", SchemeName(*module.scheme)},
          {"bits", module.scheme->bits},
          {"group_size", IsPerGroup(*module.scheme) ? Json(module.scheme->group_size) : Json(-1)},
          {"symmetric", module.scheme->symmetric}};
}

// Adds a member whose name is new. Inserting into ordered_map would search all members.
void AddMember(std::string_view name, Json value, Json& object) {
  Json::object_t::Container& members = object.get_ref<Json::object_t&>();
  members.emplace_back(name, std::move(value));
}

}  // namespace

Json OutputQuantization(const Manifest& manifest, std::span<const PackedScheme> modules) {
  Json quantization = {{"quant_method", "prepack"},
                       {"format_version", kManifestVersion},
                       {"target", manifest.target}};
  const ModuleKinds summaries(modules, Summary);
  const size_t common = summaries.MostCommon();
  quantization.update(summaries.At(common));
  Json exceptions = Json::object();
  for (size_t i = 0; i < modules.size(); ++i) {
    const size_t number = summaries.NumberOf(i);
    if (number != common) AddMember(modules[i].module, summaries.At(number), exceptions);
  }
  quantization["exceptions"] = std::move(exceptions);
  Json kept = Json::array();
  for (const auto& [name, why] : manifest.kept) kept.push_back(name);
  quantization["kept"] = std::move(kept);
  const auto ignore = manifest.source_quantization_config.find("ignore");
  quantization["ignore"] = ignore != manifest.source_quantization_config.end() && ignore->is_array()
                               ? *ignore
                               : Json::array();
  quantization["source"] = manifest.source_quantization_config;
  return quantization;
}

namespace {

constexpr std::string_view kKey = "quantization_config";

// What config.json declares; nullopt: the output is not quantized.
std::optional<Json> Declaration(const Manifest& manifest, const ManifestRecords& records,
                                std::span<const PackedScheme> modules) {
  if (!IsCheckpointTarget(manifest.target)) return OutputQuantization(manifest, modules);
  return CheckpointQuantization(manifest.target, manifest.source_quantization_config, modules,
                                PlainModules(records, modules));
}

// The object with its dtype, and those of the models in it, set to bf16.
std::string WithBf16(std::string_view object) {
  std::string text = "{";
  for (const TextMember& member : TextMembers(object)) {
    if (text.size() > 1) text += ',';
    text += fmt::format("{}:", member.key_text);
    if (IsDTypeKey(member.key) && member.value.starts_with('"')) {
      text += "\"bfloat16\"";
    } else if (member.key.ends_with("_config") && member.value.starts_with('{')) {
      text += WithBf16(member.value);
    } else {
      text += member.value;
    }
  }
  return text + "}";
}

// config.json of a model that is not quantized.
std::string PlainConfigText(std::string_view source) {
  const std::vector<std::string> path = {std::string(kKey)};
  return Reindented(WithBf16(WithoutMember(source, path)), 0) + "\n";
}

}  // namespace

bool IsDTypeKey(std::string_view key) {
  return key == "torch_dtype" || key == "dtype";
}

bool StoresBf16(const Manifest& manifest) {
  const std::vector<PackedScheme> modules = PackedSchemes(manifest);
  return IsCheckpointTarget(manifest.target) &&
         std::ranges::all_of(modules, [](const PackedScheme& module) {
           return module.scheme->code == CodeType::kBF16;
         });
}

std::string OutputConfigText(const std::string& source_text, const Manifest& manifest,
                             const ManifestRecords& records,
                             std::span<const PackedScheme> modules) {
  std::string source = source_text;
  // Older and multi-modal checkpoints keep their declaration elsewhere, but only one may remain.
  // The text has been read before, so it is an object.
  const Result<Json> config = ParseJsonStrict(source, "", {.python_numbers = true});
  if (config.ok()) {
    for (const ConfigPath& path : DeclarationPaths(*config)) {
      if (path.size() > 1 || path.front() != kKey) source = WithoutMember(source, path);
    }
  }
  const std::optional<Json> declaration = Declaration(manifest, records, modules);
  if (!declaration) return PlainConfigText(source);
  Json declared = Json::object();
  AddMember(kKey, *declaration, declared);
  const std::string document = PythonJsonText(declared);
  const std::string_view member = std::string_view(document).substr(1, document.size() - 4);

  std::string text = "{";
  bool replaced = false;
  for (const TextMember& old : TextMembers(source)) {
    if (text.size() > 1) text += ',';
    if (old.key == kKey) {
      text += member;
      replaced = true;
    } else {
      text += fmt::format("\n  {}: {}", old.key_text, Reindented(old.value, 1));
    }
  }
  if (!replaced) {
    if (text.size() > 1) text += ',';
    text += member;
  }
  return text + "\n}\n";
}

std::vector<PackedScheme> PackedSchemes(const Manifest& manifest) {
  std::vector<PackedScheme> modules;
  modules.reserve(manifest.modules.size());
  for (const auto& [name, module] : manifest.modules) {
    modules.push_back({.module = name,
                       .layout = module.layout,
                       .scheme = &module.scheme,
                       .act_order = module.act_order});
  }
  return modules;
}

}  // namespace prepack
