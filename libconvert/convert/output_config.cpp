#include "convert/output_config.h"

#include <algorithm>
#include <string>
#include <utility>

namespace prepack {
namespace {

bool IsPerGroup(const Scheme& scheme) {
  return scheme.granularity == Granularity::kGroup || scheme.granularity == Granularity::kBlock;
}

Json Summary(const ModuleRecord& module) {
  return {{"layout", module.layout},
          {"scheme", SchemeName(module.scheme)},
          {"bits", module.scheme.bits},
          {"group_size", IsPerGroup(module.scheme) ? Json(module.scheme.group_size) : Json(-1)},
          {"symmetric", module.scheme.symmetric}};
}

// The summary that most modules share; of equally frequent ones the first.
Json MostCommon(const Manifest& manifest) {
  std::vector<std::pair<Json, size_t>> counts;
  for (const auto& [name, module] : manifest.modules) {
    Json summary = Summary(module);
    const auto it = std::ranges::find(counts, summary, &std::pair<Json, size_t>::first);
    if (it != counts.end()) {
      ++it->second;
    } else {
      counts.emplace_back(std::move(summary), 1);
    }
  }
  const auto best = std::ranges::max_element(counts, {}, &std::pair<Json, size_t>::second);
  return best == counts.end() ? Json::object() : best->first;
}

}  // namespace

Json OutputConfig(const Json& source_config, const Manifest& manifest) {
  Json quantization = {{"quant_method", "prepack"},
                       {"format_version", kManifestVersion},
                       {"target", manifest.target}};
  const Json common = MostCommon(manifest);
  quantization.update(common);
  Json exceptions = Json::object();
  for (const auto& [name, module] : manifest.modules) {
    if (Json summary = Summary(module); summary != common) exceptions[name] = std::move(summary);
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

  // Older and multi-modal checkpoints keep theirs elsewhere: only one may be left.
  Json config = source_config;
  config.erase("compression_config");
  const auto text = config.find("text_config");
  if (text != config.end() && text->is_object()) text->erase("quantization_config");
  config["quantization_config"] = std::move(quantization);
  return config;
}

}  // namespace prepack
