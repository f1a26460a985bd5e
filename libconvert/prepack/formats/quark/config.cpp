#include "prepack/formats/quark/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"

namespace prepack::quark {

namespace {

constexpr size_t kMaxRules = 4096;  // each is tried on every module

// The object of `key`, an empty one where it is absent or null.
Result<const Json*> Rules(const Json& fields, std::string_view key, std::string_view where) {
  static const Json kNone = Json::object();
  const Json* rules = JsonMember(fields, key);
  if (rules == nullptr) return &kNone;
  PREPACK_TRY(RequireObject(*rules, FieldPath(where, key)));
  if (rules->size() <= kMaxRules) return rules;
  return Unsupported(FieldPath(where, key), "too many rules")
      .Found(std::to_string(rules->size()))
      .Expected(fmt::format("at most {}", kMaxRules))
      .Id(FindingId("config-too-large"));
}

Status ParseExcluded(const Json& fields, Config& config) {
  PREPACK_TRY_ASSIGN(const std::vector<std::string> entries,
                     OptionalStrings(fields, {"exclude"}, config.where));
  for (const std::string& entry : entries) {
    if (!entry.starts_with("re:")) {
      config.excluded.push_back(entry);
      continue;
    }
    PREPACK_TRY_ASSIGN(ConfigPattern pattern,
                       ConfigPattern::Parse(entry, FieldPath(config.where, "exclude")));
    config.excluded_regexes.push_back(std::move(pattern));
  }
  return {};
}

// A rotation that is folded into the weights needs nothing at run time (r1, r2), or changes no
// weights (r3). The others must be undone by rotating the inputs of these modules.
Status ReadRotation(const Json& step, const std::string& where, Config& config) {
  PREPACK_TRY(RequireObject(step, where));
  PREPACK_TRY_ASSIGN(const std::string name, Text(step, "name", where));
  if (name != "rotation") return {};
  PREPACK_TRY_ASSIGN(const std::optional<bool> r4, OptionalBool(step, "r4", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> r1, OptionalBool(step, "online_r1_rotation", where));
  const Json* online = JsonMember(step, "online_config");
  std::vector<std::string> modules;
  if (online != nullptr) {
    const std::string place = FieldPath(where, "online_config");
    PREPACK_TRY(RequireObject(*online, place));
    PREPACK_TRY_ASSIGN(modules, OptionalStrings(*online, {"online_rotation_layers"}, place));
  }
  const bool rotates = r4.value_or(false) || r1.value_or(false);
  if (rotates && modules.empty()) {
    return Unsupported(where, "the model rotates activations at run time")
        .Found(r4.value_or(false) ? "r4" : "online_r1_rotation")
        .Expected("only rotations that are folded into the weights")
        .Hint(kWithoutRotation)
        .Id(FindingId("rotation"));
  }
  config.rotated.insert(modules.begin(), modules.end());
  return {};
}

// Algorithms that prepared the weights: a list, or in older versions one.
Status ReadAlgorithms(const Json& fields, Config& config) {
  const Json* steps = JsonMember(fields, "algo_config");
  if (steps == nullptr) return {};
  const std::string where = FieldPath(config.where, "algo_config");
  if (!steps->is_array()) return ReadRotation(*steps, where, config);
  for (const Json& step : *steps) PREPACK_TRY(ReadRotation(step, where, config));
  return {};
}

// `export` says how weights were saved: by default, with nibbles in AWQ's order.
Status ReadExport(const Json& fields, std::string_view where, bool& awq_order) {
  const Json* exported = JsonMember(fields, "export");
  if (exported == nullptr) return {};
  const std::string place = FieldPath(where, "export");
  PREPACK_TRY(RequireObject(*exported, place));
  PREPACK_TRY_ASSIGN(const std::string order, Text(*exported, "pack_method", place));
  if (!order.empty() && order != "reorder" && order != "order") {
    return Unsupported(FieldPath(place, "pack_method"), "unknown order of nibbles")
        .Found(fmt::format("\"{}\"", Printable(order)))
        .Expected("\"reorder\" or \"order\"")
        .Id(FindingId("storage-unsupported"));
  }
  awq_order = order != "order";
  PREPACK_TRY_ASSIGN(const std::string format, Text(*exported, "weight_format", place));
  if (format.empty() || format == "real_quantized") return {};
  return Unsupported(FieldPath(place, "weight_format"),
                     "the weights are stored in floating point, not quantized")
      .Found(fmt::format("\"{}\"", Printable(format)))
      .Expected("\"real_quantized\"")
      .Hint("Export the model again with real_quantized weights")
      .Id(FindingId("weight-fake-quantized"));
}

Result<Config> ParseQuarkConfig(const QuantizationConfig& declared) {
  const Json& fields = *declared.fields;
  Config config;
  config.where = declared.where;
  PREPACK_TRY(ReadExport(fields, config.where, config.awq_order));
  if (const Json* all = JsonMember(fields, "global_quant_config")) {
    PREPACK_TRY_ASSIGN(config.all, ParseSpec(*all, FieldPath(config.where, "global_quant_config")));
  }
  PREPACK_TRY_ASSIGN(const Json* layers, Rules(fields, "layer_quant_config", config.where));
  const std::string layers_place = FieldPath(config.where, "layer_quant_config");
  for (const auto& [pattern, spec] : layers->items()) {
    PREPACK_TRY_ASSIGN(Spec parsed, ParseSpec(spec, FieldPath(layers_place, Printable(pattern))));
    config.layers.push_back({.pattern = pattern, .spec = std::move(parsed)});
  }
  PREPACK_TRY_ASSIGN(const Json* types, Rules(fields, "layer_type_quant_config", config.where));
  const std::string types_place = FieldPath(config.where, "layer_type_quant_config");
  for (const auto& [name, spec] : types->items()) {
    if (name.find("Linear") == std::string::npos) continue;
    PREPACK_TRY_ASSIGN(config.type, ParseSpec(spec, FieldPath(types_place, Printable(name))));
  }
  PREPACK_TRY(ParseExcluded(fields, config));
  PREPACK_TRY(ReadAlgorithms(fields, config));
  return config;
}

}  // namespace

const Spec& Config::SpecOf(std::string_view module) const {
  const std::vector<const Rule*> rules = RulesOf(module);
  if (!rules.empty()) return rules.front()->spec;
  return type ? *type : all;
}

std::vector<const Config::Rule*> Config::RulesOf(std::string_view module) const {
  std::vector<const Rule*> rules;
  for (const Rule& rule : layers) {
    const auto same = [&](const Rule* other) { return other->spec == rule.spec; };
    if (MatchesWildcard(rule.pattern, module) && std::ranges::none_of(rules, same)) {
      rules.push_back(&rule);
    }
  }
  return rules;
}

Result<bool> Config::Excludes(std::string_view module) const {
  for (const std::string& pattern : excluded) {
    if (MatchesWildcard(pattern, module)) return true;
  }
  for (const ConfigPattern& pattern : excluded_regexes) {
    PREPACK_TRY_ASSIGN(const bool matches, pattern.MatchesName(module));
    if (matches) return true;
  }
  return false;
}

Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared) {
  Result<Config> first = ParseQuarkConfig(declared.front());
  if (!first.ok()) return first;
  for (size_t i = 1; i < declared.size(); ++i) {
    PREPACK_TRY(ParseQuarkConfig(declared[i]).status());
    for (const std::string_view key :
         {"global_quant_config", "layer_quant_config", "layer_type_quant_config"}) {
      const Json* ours = JsonMember(*declared.front().fields, key);
      const Json* theirs = JsonMember(*declared[i].fields, key);
      const Json none;
      const Json& found = theirs == nullptr ? none : *theirs;
      const Json& expected = ours == nullptr ? none : *ours;
      if (SameJson(found, expected)) continue;
      return CopiesDisagree(FieldPath(declared[i].where, key), ShowJson(found), ShowJson(expected),
                            first->where);
    }
  }
  return first;
}

}  // namespace prepack::quark
