#include "prepack/formats/quark/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/json_fields.h"

namespace prepack {
namespace {

constexpr size_t kMaxRules = 4096;  // each is tried on every module
constexpr std::string_view kFp8 = "fp8_e4m3";

// A string field, "" where it is absent.
Result<std::string> Text(const Json& fields, std::string_view key, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> value, OptionalString(fields, key, where));
  return value.value_or("");
}

// What weights are called that are not read: by what tells them apart, because the tensors of
// several kinds have the same names and shapes.
std::string NameOfKind(std::string_view dtype, std::string_view scale_format,
                       std::string_view qscheme) {
  if (dtype == "fp4" && scale_format == "e8m0") return "MXFP4";
  if (dtype == "fp4" && scale_format == "e5m3") return "AMDFP4 (scales in e5m3)";
  if (dtype.starts_with("fp6")) return "MXFP6";
  if (dtype == kFp8 && scale_format == "e8m0") return "MXFP8";
  return fmt::format("{} {}", Printable(dtype), Printable(qscheme));
}

// Whether a spec of FP8 has one scale or one per channel; nullopt where it has others.
std::optional<Granularity> GranularityOf(std::string_view qscheme, int64_t axis, int64_t channels) {
  if (qscheme == "per_tensor") return Granularity::kTensor;
  if (qscheme == "per_channel" && axis == channels) return Granularity::kChannel;
  return std::nullopt;
}

Status ParseWeight(const Json& spec, const std::string& where, QuarkSpec& parsed) {
  if (spec.is_array()) {
    // NVFP4: the scales of the codes are quantized, too; int4-fp8: the codes are quantized twice.
    const bool is_nvfp4 = !spec.empty() && spec[0].is_object() &&
                          JsonMember(spec[0], "dtype") != nullptr &&
                          *JsonMember(spec[0], "dtype") == "fp4";
    parsed.other = is_nvfp4 ? "NVFP4" : "two-step";
    return {};
  }
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::string scale_format, Text(spec, "scale_format", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, OptionalInt(spec, "ch_axis", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  const std::optional<Granularity> granularity = GranularityOf(qscheme, axis.value_or(0), 0);
  const bool plain_scales = scale_format.empty() || scale_format == "float32";
  if (dtype != kFp8 || !granularity || !plain_scales || !symmetric.value_or(true)) {
    parsed.other = NameOfKind(dtype, scale_format, qscheme);
    return {};
  }
  parsed.fp8 = Fp8Meaning();
  parsed.fp8->granularity = granularity;
  return {};
}

Status ParseInput(const Json& spec, const std::string& where, ActivationScheme& activations) {
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, OptionalInt(spec, "ch_axis", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> dynamic, OptionalBool(spec, "is_dynamic", where));
  const std::optional<Granularity> granularity = GranularityOf(qscheme, axis.value_or(1), 1);
  const bool is_static = !dynamic.value_or(false);
  if (dtype != kFp8 || !granularity || (is_static && *granularity != Granularity::kTensor)) {
    return Unsupported(where, "activations of this kind are not supported with FP8 weights")
        .Found(fmt::format("{} {}, {}", Printable(dtype), Printable(qscheme),
                           is_static ? "static" : "dynamic"))
        .Expected("fp8_e4m3 per_tensor, or dynamic per_channel with ch_axis 1")
        .Id(FindingId("scheme-unsupported"));
  }
  activations.type = ActivationType::kFloat;
  activations.bits = 8;
  activations.dynamic = !is_static;
  activations.granularity = *granularity == Granularity::kTensor ? ActivationGranularity::kTensor
                                                                 : ActivationGranularity::kToken;
  return {};
}

Result<QuarkSpec> ParseSpec(const Json& fields, const std::string& where) {
  PREPACK_TRY(RequireObject(fields, where));
  QuarkSpec parsed;
  const Json* weight = JsonMember(fields, "weight");
  if (weight == nullptr) return parsed;
  PREPACK_TRY(ParseWeight(*weight, FieldPath(where, "weight"), parsed));
  const Json* input = JsonMember(fields, "input_tensors");
  if (!parsed.fp8 || input == nullptr) return parsed;
  PREPACK_TRY(ParseInput(*input, FieldPath(where, "input_tensors"), parsed.fp8->activations));
  return parsed;
}

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

Status ParseExcluded(const Json& fields, QuarkConfig& config) {
  const Json* list = JsonMember(fields, "exclude");
  if (list == nullptr) return {};
  const std::string where = FieldPath(config.where, "exclude");
  const bool strings = list->is_array() && std::ranges::all_of(*list, [](const Json& entry) {
                         return entry.is_string();
                       });
  if (!strings) {
    return Malformed(where, "the field has the wrong type")
        .Found(ShowJson(*list))
        .Expected("a list of strings")
        .Id(FindingId("config-field-invalid"));
  }
  for (const Json& entry : *list) {
    const auto text = entry.get<std::string>();
    if (!text.starts_with("re:")) {
      config.excluded.push_back(text);
      continue;
    }
    PREPACK_TRY_ASSIGN(ConfigPattern pattern, ConfigPattern::Parse(text, where));
    config.excluded_regexes.push_back(std::move(pattern));
  }
  return {};
}

// `export` says how weights were saved.
Status CheckExport(const Json& fields, std::string_view where) {
  const Json* exported = JsonMember(fields, "export");
  if (exported == nullptr) return {};
  const std::string place = FieldPath(where, "export");
  PREPACK_TRY(RequireObject(*exported, place));
  PREPACK_TRY_ASSIGN(const std::string format, Text(*exported, "weight_format", place));
  if (format.empty() || format == "real_quantized") return {};
  return Unsupported(FieldPath(place, "weight_format"),
                     "the weights are stored in floating point, not quantized")
      .Found(fmt::format("\"{}\"", Printable(format)))
      .Expected("\"real_quantized\"")
      .Hint("Export the model again with real_quantized weights")
      .Id(FindingId("weight-fake-quantized"));
}

Result<QuarkConfig> ParseQuarkConfig(const QuantizationConfig& declared) {
  const Json& fields = *declared.fields;
  QuarkConfig config;
  config.where = declared.where;
  PREPACK_TRY(CheckExport(fields, config.where));
  if (const Json* all = JsonMember(fields, "global_quant_config")) {
    PREPACK_TRY_ASSIGN(config.all, ParseSpec(*all, FieldPath(config.where, "global_quant_config")));
  }
  PREPACK_TRY_ASSIGN(const Json* layers, Rules(fields, "layer_quant_config", config.where));
  const std::string layers_place = FieldPath(config.where, "layer_quant_config");
  for (const auto& [pattern, spec] : layers->items()) {
    PREPACK_TRY_ASSIGN(QuarkSpec parsed,
                       ParseSpec(spec, FieldPath(layers_place, Printable(pattern))));
    config.layers.push_back({.pattern = pattern, .spec = std::move(parsed)});
  }
  PREPACK_TRY_ASSIGN(const Json* types, Rules(fields, "layer_type_quant_config", config.where));
  const std::string types_place = FieldPath(config.where, "layer_type_quant_config");
  for (const auto& [name, spec] : types->items()) {
    if (name.find("Linear") == std::string::npos) continue;
    PREPACK_TRY_ASSIGN(config.type, ParseSpec(spec, FieldPath(types_place, Printable(name))));
  }
  PREPACK_TRY(ParseExcluded(fields, config));
  return config;
}

}  // namespace

const QuarkSpec& QuarkConfig::SpecOf(std::string_view module) const {
  const auto rule = std::ranges::find_if(
      layers, [&](const Rule& each) { return MatchesWildcard(each.pattern, module); });
  if (rule != layers.end()) return rule->spec;
  return type ? *type : all;
}

Result<bool> QuarkConfig::Excludes(std::string_view module) const {
  for (const std::string& pattern : excluded) {
    if (MatchesWildcard(pattern, module)) return true;
  }
  for (const ConfigPattern& pattern : excluded_regexes) {
    PREPACK_TRY_ASSIGN(const bool matches, pattern.MatchesName(module));
    if (matches) return true;
  }
  return false;
}

Result<QuarkConfig> ParseQuarkConfigs(const std::vector<QuantizationConfig>& declared) {
  Result<QuarkConfig> first = ParseQuarkConfig(declared.front());
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
      return Malformed(FieldPath(declared[i].where, key),
                       "two copies of the quantization config disagree")
          .Found(ShowJson(found))
          .Expected(fmt::format("{}, as {} says", ShowJson(expected), first->where))
          .Hint("Make them equal: readers differ in which copy they use")
          .Id(FindingId("config-conflict"));
    }
  }
  return first;
}

}  // namespace prepack
