#include "prepack/formats/quark/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
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
constexpr size_t kMostSteps = 4;    // that are named
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
  if (dtype == "mx6" || dtype == "mx9") return fmt::format("OCP MX ({})", dtype);
  if (dtype == kFp8 && scale_format == "e8m0") return "MXFP8";
  return fmt::format("{} {}", Printable(dtype), Printable(qscheme));
}

// Whether a spec of FP8 has one scale or one per channel; nullopt where it has others.
std::optional<Granularity> GranularityOf(std::string_view qscheme, int64_t axis, int64_t channels) {
  if (qscheme == "per_tensor") return Granularity::kTensor;
  if (qscheme == "per_channel" && axis == channels) return Granularity::kChannel;
  return std::nullopt;
}

// Two steps, of which the second quantizes the scales of the first: FP4 in groups of 16, whose
// scales are FP8 below one scale for all.
Result<bool> IsNvfp4(const Json& steps, const std::string& where) {
  if (steps.size() != 2) return false;
  for (const Json& step : steps) PREPACK_TRY(RequireObject(step, where));
  PREPACK_TRY_ASSIGN(const std::string codes, Text(steps[0], "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string groups, Text(steps[0], "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> size, OptionalInt(steps[0], "group_size", where));
  PREPACK_TRY_ASSIGN(const std::string scales, Text(steps[1], "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string one, Text(steps[1], "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> of_scales,
                     OptionalBool(steps[1], "is_scale_quant", where));
  return codes == "fp4" && groups == "per_group" && size == int64_t{fp4::kNvfp4Group} &&
         scales == kFp8 && one == "per_tensor" && of_scales.value_or(false);
}

// Codes that are quantized again, or their scales: "fp8_e4m3 per_tensor, then int4 per_channel".
Status NameSteps(const Json& steps, const std::string& where, std::string& name) {
  std::vector<std::string> names;
  for (const Json& step : steps) {
    PREPACK_TRY(RequireObject(step, where));
    PREPACK_TRY_ASSIGN(const std::string dtype, Text(step, "dtype", where));
    PREPACK_TRY_ASSIGN(const std::string qscheme, Text(step, "qscheme", where));
    PREPACK_TRY_ASSIGN(const std::optional<bool> scales,
                       OptionalBool(step, "is_scale_quant", where));
    names.push_back(fmt::format("{}{}{}{}", scales.value_or(false) ? "scales in " : "",
                                Printable(dtype), qscheme.empty() ? "" : " ", Printable(qscheme)));
    if (names.size() == kMostSteps) break;
  }
  name = fmt::format("twice quantized ({})", fmt::join(names, ", then "));
  return {};
}

// Integers of 4 or 8 bits, where they are of a kind that is read.
Result<std::optional<IntegerMeaning>> ParseIntegers(const Json& spec, const std::string& where) {
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  IntegerMeaning meaning;
  meaning.is_signed = !dtype.starts_with('u');
  meaning.bits = dtype.ends_with('8') ? 8 : 4;
  const bool known = dtype == "int4" || dtype == "uint4" || dtype == "int8" || dtype == "uint8";
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::string zeros, Text(spec, "zero_point_type", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, OptionalInt(spec, "ch_axis", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group, OptionalInt(spec, "group_size", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> dynamic, OptionalBool(spec, "is_dynamic", where));
  meaning.symmetric = symmetric.value_or(true);
  if (!known || zeros == "float32" || dynamic.value_or(false)) {
    return std::optional<IntegerMeaning>();
  }
  const bool by_inputs = axis.value_or(-1) == 1 || axis.value_or(-1) == -1;
  if (qscheme == "per_tensor") {
    meaning.granularity = Granularity::kTensor;
  } else if (qscheme == "per_channel" && axis.value_or(0) == 0) {
    meaning.granularity = Granularity::kChannel;
  } else if (qscheme == "per_group" && by_inputs && group.value_or(0) > 0) {
    meaning.granularity = Granularity::kGroup;
    meaning.group_size = static_cast<uint64_t>(*group);
  } else {
    return std::optional<IntegerMeaning>();
  }
  return std::optional(meaning);
}

Status ParseWeight(const Json& spec, const std::string& where, Spec& parsed) {
  if (spec.is_array()) {
    PREPACK_TRY_ASSIGN(const bool nvfp4, IsNvfp4(spec, where));
    if (nvfp4) {
      parsed.fp4 = fp4::Meaning{.nvfp4 = true, .activations = {}};
      return {};
    }
    return NameSteps(spec, where, parsed.other);
  }
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::string scale_format, Text(spec, "scale_format", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, OptionalInt(spec, "ch_axis", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  const std::optional<Granularity> granularity = GranularityOf(qscheme, axis.value_or(0), 0);
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group, OptionalInt(spec, "group_size", where));
  // AMDFP4 has the same tensors; only the format of the scales tells.
  if (dtype == "fp4" && scale_format == "e8m0" && qscheme == "per_group" &&
      group == int64_t{fp4::kMxGroup}) {
    parsed.fp4 = fp4::Meaning();
    return {};
  }
  PREPACK_TRY_ASSIGN(parsed.integers, ParseIntegers(spec, where));
  if (parsed.integers) return {};
  const bool plain_scales = scale_format.empty() || scale_format == "float32";
  if (dtype != kFp8 || !granularity || !plain_scales || !symmetric.value_or(true)) {
    parsed.other = NameOfKind(dtype, scale_format, qscheme);
    return {};
  }
  parsed.fp8 = fp8::Meaning();
  parsed.fp8->granularity = granularity;
  return {};
}

// Which activations of 8 bits there are beside weights of a kind.
struct InputKind {
  std::string_view weights;
  std::string_view dtype;
  ActivationType type = ActivationType::kFloat;
};

constexpr InputKind kFp8Inputs{.weights = "FP8", .dtype = kFp8, .type = ActivationType::kFloat};
constexpr InputKind kIntegerInputs{
    .weights = "integer", .dtype = "int8", .type = ActivationType::kInt};

// Per tensor, or at run time per token.
Status ParseInput(const Json& spec, const std::string& where, const InputKind& kind,
                  ActivationScheme& activations) {
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  PREPACK_TRY_ASSIGN(const std::string qscheme, Text(spec, "qscheme", where));
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> axis, OptionalInt(spec, "ch_axis", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> dynamic, OptionalBool(spec, "is_dynamic", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(spec, "symmetric", where));
  const std::optional<Granularity> granularity = GranularityOf(qscheme, axis.value_or(1), 1);
  const bool is_static = !dynamic.value_or(false);
  if (dtype != kind.dtype || !granularity || (is_static && *granularity != Granularity::kTensor)) {
    return Unsupported(where, fmt::format("activations of this kind are not supported with {} "
                                          "weights",
                                          kind.weights))
        .Found(fmt::format("{} {}, {}", Printable(dtype), Printable(qscheme),
                           is_static ? "static" : "dynamic"))
        .Expected(fmt::format("{} per_tensor, or dynamic per_channel with ch_axis 1", kind.dtype))
        .Id(FindingId("scheme-unsupported"));
  }
  activations.type = kind.type;
  activations.bits = 8;
  // Floats have no zero point.
  if (kind.type == ActivationType::kInt) activations.symmetric = symmetric.value_or(true);
  activations.dynamic = !is_static;
  activations.granularity = *granularity == Granularity::kTensor ? ActivationGranularity::kTensor
                                                                 : ActivationGranularity::kToken;
  return {};
}

// Activations of NVFP4 are of the same kind; input_scale_2 is the scale of their scales.
Status ParseNvfp4Input(const Json& spec, const std::string& where, fp4::Meaning& meaning) {
  PREPACK_TRY_ASSIGN(const bool nvfp4, spec.is_array() ? IsNvfp4(spec, where) : false);
  if (nvfp4) {
    meaning.activations = fp4::FourBitActivations(fp4::kNvfp4Group);
    return {};
  }
  return Unsupported(where, "activations of this kind are not supported with NVFP4 weights")
      .Found(ShowJson(spec))
      .Expected("fp4 in groups of 16, whose scales are fp8_e4m3")
      .Id(FindingId("scheme-unsupported"));
}

// Activations of MXFP4 are of the same kind, or FP8, and always quantized at run time.
Status ParseFp4Input(const Json& spec, const std::string& where, fp4::Meaning& meaning) {
  if (meaning.nvfp4) return ParseNvfp4Input(spec, where, meaning);
  PREPACK_TRY(RequireObject(spec, where));
  PREPACK_TRY_ASSIGN(const std::string dtype, Text(spec, "dtype", where));
  if (dtype == kFp8) return ParseInput(spec, where, kFp8Inputs, meaning.activations);
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group, OptionalInt(spec, "group_size", where));
  PREPACK_TRY_ASSIGN(const std::optional<bool> dynamic, OptionalBool(spec, "is_dynamic", where));
  if (dtype == "fp4" && group == int64_t{fp4::kMxGroup} && dynamic.value_or(false)) {
    meaning.activations = fp4::FourBitActivations(fp4::kMxGroup);
    return {};
  }
  return Unsupported(where, "activations of this kind are not supported with MXFP4 weights")
      .Found(fmt::format("{} in groups of {}, {}", Printable(dtype), group.value_or(0),
                         dynamic.value_or(false) ? "dynamic" : "static"))
      .Expected("fp4 in groups of 32, dynamic, or fp8_e4m3")
      .Id(FindingId("scheme-unsupported"));
}

Result<Spec> ParseSpec(const Json& fields, const std::string& where) {
  PREPACK_TRY(RequireObject(fields, where));
  Spec parsed;
  const Json* weight = JsonMember(fields, "weight");
  if (weight == nullptr) return parsed;
  PREPACK_TRY(ParseWeight(*weight, FieldPath(where, "weight"), parsed));
  const Json* input = JsonMember(fields, "input_tensors");
  if (input == nullptr) return parsed;
  const std::string place = FieldPath(where, "input_tensors");
  if (parsed.fp4) PREPACK_TRY(ParseFp4Input(*input, place, *parsed.fp4));
  if (parsed.fp8) PREPACK_TRY(ParseInput(*input, place, kFp8Inputs, parsed.fp8->activations));
  if (parsed.integers) {
    PREPACK_TRY(ParseInput(*input, place, kIntegerInputs, parsed.integers->activations));
  }
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
  return config;
}

}  // namespace

const Spec& Config::SpecOf(std::string_view module) const {
  const auto rule = std::ranges::find_if(
      layers, [&](const Rule& each) { return MatchesWildcard(each.pattern, module); });
  if (rule != layers.end()) return rule->spec;
  return type ? *type : all;
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

}  // namespace prepack::quark
