// config.json of a packed folder: the source's text with one member replaced. The rest is copied as
// text, not parsed and printed again, which would change numbers (-0, integers beyond 64 bits) and
// the order of keys.

#include "prepack/packed/output_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/container/json.h"
#include "prepack/container/json_writer.h"
#include "prepack/formats/quantization_config.h"

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

// The summaries of all modules, of which few differ.
class Summaries {
 public:
  explicit Summaries(std::span<const PackedScheme> modules) {
    for (const PackedScheme& module : modules) {
      if (numbers_.empty() || !SameAsLast(module)) Find(module);
      numbers_.push_back(last_);
      ++counts_[last_];
    }
  }

  // The number of the summary that most modules share, the first one if several are equally
  // frequent.
  size_t MostCommon() const {
    return static_cast<size_t>(std::ranges::max_element(counts_) - counts_.begin());
  }
  // The number of the summary of a module.
  size_t NumberOf(size_t module) const { return numbers_[module]; }
  // An empty object if there are no modules.
  const Json& At(size_t number) const { return number < list_.size() ? list_[number] : empty_; }

 private:
  // Neighbours are mostly alike, and comparing them is cheaper than making JSON.
  bool SameAsLast(const PackedScheme& module) const {
    return module.layout == last_module_.layout && *module.scheme == *last_module_.scheme;
  }
  void Find(const PackedScheme& module) {
    last_module_ = module;
    Json summary = Summary(module);
    last_ = static_cast<size_t>(std::ranges::find(list_, summary) - list_.begin());
    if (last_ < list_.size()) return;
    list_.push_back(std::move(summary));
    counts_.push_back(0);
  }

  std::vector<Json> list_;
  std::vector<size_t> counts_;   // of modules, by number of the summary
  std::vector<size_t> numbers_;  // of summaries, by module
  PackedScheme last_module_;
  size_t last_ = 0;
  Json empty_ = Json::object();
};

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
  const Summaries summaries(modules);
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

std::string OutputConfigText(const std::string& source_text, const Manifest& manifest,
                             std::span<const PackedScheme> modules) {
  constexpr std::string_view kKey = "quantization_config";
  std::string source = source_text;
  // Older and multi-modal checkpoints keep their declaration elsewhere, but only one may remain.
  // The text has been read before, so it is an object.
  const Result<Json> config = ParseJsonStrict(source, "", {.python_numbers = true});
  if (config.ok()) {
    for (const ConfigPath& path : DeclarationPaths(*config)) {
      if (path.size() > 1 || path.front() != kKey) source = WithoutMember(source, path);
    }
  }
  Json declared = Json::object();
  AddMember(kKey, OutputQuantization(manifest, modules), declared);
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
    modules.push_back({.module = name, .layout = module.layout, .scheme = &module.scheme});
  }
  return modules;
}

}  // namespace prepack
