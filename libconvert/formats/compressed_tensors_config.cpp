#include "formats/compressed_tensors_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/finding.h"
#include "formats/json_fields.h"

namespace prepack {

namespace {

// Formats that a group can be stored in. All are known by name, whether or not they are read.
constexpr std::array<std::string_view, 9> kGroupFormats = {
    kCtDense,          kCtPackQuantized,       kCtIntQuantized,
    kCtFloatQuantized, kCtNaiveQuantized,      "nvfp4-pack-quantized",
    "mxfp8-quantized", "mxfp4-pack-quantized", "nvfp4-e5m3-pack-quantized"};
constexpr std::array<std::string_view, 3> kSparseFormats = {"sparse-bitmask", "sparse-24-bitmask",
                                                            "marlin-24"};

constexpr std::array<std::string_view, 5> kGroupKeys = {"targets", "weights", "input_activations",
                                                        "output_activations", "format"};

constexpr std::string_view kMixedPrecision = "mixed-precision";

template <size_t Count>
bool Contains(const std::array<std::string_view, Count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status RefuseSparsity(std::string_view where, std::string_view format) {
  return Unsupported(where, "the weights are stored sparse")
      .Found(fmt::format("\"{}\"", Printable(format)))
      .Hint("Save the model again without sparsity compression")
      .Id(FindingId("storage-unsupported"));
}

// kUnsupported unless the format is one of those above.
Status CheckFormat(std::string_view format, std::string_view where) {
  if (Contains(kSparseFormats, format)) return RefuseSparsity(where, format);
  if (Contains(kGroupFormats, format)) return {};
  return Unsupported(where, "unknown storage format")
      .Found(fmt::format("\"{}\"", Printable(format)))
      .Hint("The checkpoint was written by a newer or different tool than this reader knows")
      .Id(FindingId("storage-unsupported"));
}

// What compressed-tensors would choose when no format is given (config/format.py).
std::string_view InferFormat(const CtGroup& group) {
  if (!group.weights) return kCtDense;
  const CtArgs& weights = *group.weights;
  if (weights.type == CtType::kFloat) {
    if (weights.num_bits == 4) {
      return weights.group_size == 32 ? "mxfp4-pack-quantized" : "nvfp4-pack-quantized";
    }
    if (weights.strategy == CtStrategy::kGroup && weights.group_size == 32) {
      return "mxfp8-quantized";
    }
    return group.input_activations ? kCtFloatQuantized : kCtNaiveQuantized;
  }
  return group.input_activations ? kCtIntQuantized : kCtPackQuantized;
}

Result<std::vector<ConfigPattern>> ParsePatterns(const Json& list, const std::string& where) {
  if (!list.is_array()) {
    return Malformed(where, "the field has the wrong type")
        .Found(ShowJson(list))
        .Expected("a list of strings")
        .Id(FindingId("config-field-invalid"));
  }
  std::vector<ConfigPattern> patterns;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string entry = fmt::format("{}[{}]", where, i);
    if (!list[i].is_string()) {
      return Malformed(entry, "the field has the wrong type")
          .Found(ShowJson(list[i]))
          .Expected("a string")
          .Id(FindingId("config-field-invalid"));
    }
    Result<ConfigPattern> pattern =
        ConfigPattern::Parse(list[i].get_ref<const std::string&>(), entry);
    if (!pattern.ok()) return pattern.status();
    patterns.push_back(*std::move(pattern));
  }
  return patterns;
}

Result<std::optional<CtArgs>> ParseOptionalArgs(const Json& scheme, std::string_view key,
                                                CtRole role, std::string_view where) {
  const Json* value = JsonMember(scheme, key);
  if (value == nullptr) return std::optional<CtArgs>();
  Result<CtArgs> args = ParseCtArgs(*value, role, FieldPath(where, key));
  if (!args.ok()) return args.status();
  return std::optional<CtArgs>(*args);
}

// {"targets": […], "weights": {…}, …}
Status ParseSchemeObject(const Json& scheme, CtGroup& group) {
  Status status = RefuseUnknownKeys(scheme, kGroupKeys, group.where);
  if (!status.ok()) return status;
  const Json* targets = JsonMember(scheme, "targets");
  if (targets == nullptr) {
    return Malformed(group.where, "the group has no targets").Id(FindingId("config-field-invalid"));
  }
  Result<std::vector<ConfigPattern>> patterns =
      ParsePatterns(*targets, FieldPath(group.where, "targets"));
  if (!patterns.ok()) return patterns.status();
  group.targets = *std::move(patterns);

  const std::array<std::pair<std::string_view, std::optional<CtArgs>*>, 3> parts = {{
      {"weights", &group.weights},
      {"input_activations", &group.input_activations},
      {"output_activations", &group.output_activations},
  }};
  for (const auto& [key, args] : parts) {
    const CtRole role = args == &group.weights ? CtRole::kWeights : CtRole::kActivations;
    const Result<std::optional<CtArgs>> parsed = ParseOptionalArgs(scheme, key, role, group.where);
    if (!parsed.ok()) return parsed.status();
    *args = *parsed;
  }

  const Result<std::optional<std::string>> format = OptionalString(scheme, "format", group.where);
  if (!format.ok()) return format.status();
  if (!*format) return {};
  group.format = LowerCase(**format);
  return CheckFormat(group.format, FieldPath(group.where, "format"));
}

// "W4A16": ["Linear"], the form before 0.5: the name of the group is a preset.
Status ParsePresetList(const Json& targets, CtGroup& group) {
  std::optional<CtPreset> preset = FindCtPreset(group.name);
  if (!preset) {
    return Unsupported(group.where, "unknown preset")
        .Found(fmt::format("\"{}\"", Printable(group.name)))
        .Expected("a preset such as W4A16, or an object with targets and weights")
        .Id(FindingId("config-keyword-unknown"));
  }
  Result<std::vector<ConfigPattern>> patterns = ParsePatterns(targets, group.where);
  if (!patterns.ok()) return patterns.status();
  group.targets = *std::move(patterns);
  group.preset = true;
  group.weights = preset->weights;
  group.input_activations = preset->input_activations;
  return {};
}

Result<std::vector<CtGroup>> ParseGroups(const Json& fields, std::string_view where) {
  std::vector<CtGroup> groups;
  const Json* value = JsonMember(fields, "config_groups");
  if (value == nullptr) return groups;
  const std::string groups_where = FieldPath(where, "config_groups");
  Status status = RequireObject(*value, groups_where);
  if (!status.ok()) return status;
  for (const auto& [name, scheme] : value->items()) {
    CtGroup group;
    group.name = name;
    group.where = FieldPath(groups_where, name);
    if (scheme.is_array()) {
      status = ParsePresetList(scheme, group);
    } else {
      status = RequireObject(scheme, group.where);
      if (status.ok()) status = ParseSchemeObject(scheme, group);
    }
    if (!status.ok()) return status;
    groups.push_back(std::move(group));
  }
  return groups;
}

// A group's own format, else that of the whole file unless it names none, else the default for
// the scheme.
Status ResolveFormats(const Json& fields, std::string_view where, std::vector<CtGroup>& groups) {
  const Result<std::optional<std::string>> format = OptionalString(fields, "format", where);
  if (!format.ok()) return format.status();
  std::string whole = LowerCase(format->value_or("fakequant"));
  if (whole == kMixedPrecision || whole == kCtDense || whole == "fakequant") whole.clear();
  if (!whole.empty()) {
    Status status = CheckFormat(whole, FieldPath(where, "format"));
    if (!status.ok()) return status;
  }
  for (CtGroup& group : groups) {
    if (group.format.empty()) group.format = whole;
    if (group.format.empty()) group.format = InferFormat(group);
  }
  return {};
}

// Features that change what the stored numbers mean, whatever the groups say.
Status RefuseFeatures(const Json& fields, const std::string& where) {
  if (const Json* sparsity = JsonMember(fields, "sparsity_config")) {
    const std::string field = FieldPath(where, "sparsity_config");
    Status status = RequireObject(*sparsity, field);
    if (!status.ok()) return status;
    const Result<std::optional<std::string>> format = OptionalString(*sparsity, "format", field);
    if (!format.ok()) return format.status();
    const std::string name = LowerCase(format->value_or(sparsity->empty() ? "dense" : "missing"));
    if (name != kCtDense) return RefuseSparsity(FieldPath(field, "format"), name);
  }
  if (const Json* flavor = JsonMember(fields, "fp8_dtype_flavor")) {
    return Unsupported(FieldPath(where, "fp8_dtype_flavor"),
                       "the FP8 values are those of another machine")
        .Found(ShowJson(*flavor))
        .Hint("Quantize the model to the E4M3 numbers of other machines")
        .Id(FindingId("storage-unsupported"));
  }
  return {};
}

Status RefuseTransform(const std::string& field, const Json& found, std::string_view what) {
  return Unsupported(field, what)
      .Found(ShowJson(found))
      .Expected("rotations that are folded into the weights: weight_input, weight_output")
      .Hint("Quantize the model without rotations that run online (SpinQuant's R3 and R4, QuIP)")
      .Id(FindingId("rotation"));
}

// One application of a rotation. Those of weights are done when a checkpoint is written; all others
// change activations, keys or queries at run time.
Status RequireFolded(const Json& apply, const std::string& where) {
  Status status = RequireObject(apply, where);
  if (!status.ok()) return status;
  const Result<std::optional<std::string>> location = OptionalString(apply, "location", where);
  if (!location.ok()) return location.status();
  const std::string name = location->value_or("");
  if (name == "weight_input" || name == "weight_output") return {};
  return RefuseTransform(FieldPath(where, "location"), Json(name),
                         "the model rotates activations at run time, which is not read");
}

// True when there are rotations, and all of them are folded into the stored weights. Others are
// kUnsupported.
Result<bool> ParseTransforms(const Json& fields, const std::string& where) {
  const Json* transforms = JsonMember(fields, "transform_config");
  if (transforms == nullptr) return false;
  const std::string field = FieldPath(where, "transform_config");
  Status status = RequireObject(*transforms, field);
  if (!status.ok()) return status;
  if (transforms->empty()) return false;
  const Json* schemes = JsonMember(*transforms, "config_groups");
  if (schemes == nullptr || !schemes->is_object() || transforms->size() != 1) {
    return RefuseTransform(field, *transforms, "it does not say where the model is rotated");
  }
  for (const auto& [name, scheme] : schemes->items()) {
    const std::string at = FieldPath(FieldPath(field, "config_groups"), name);
    const Json* apply = JsonMember(scheme, "apply");
    if (apply == nullptr || !apply->is_array() || apply->empty()) {
      return RefuseTransform(at, scheme, "it does not say where the model is rotated");
    }
    for (size_t i = 0; i < apply->size(); ++i) {
      status = RequireFolded((*apply)[i], fmt::format("{}.apply[{}]", at, i));
      if (!status.ok()) return status;
    }
  }
  return !schemes->empty();
}

}  // namespace

std::optional<CtVersion> ParseCtVersion(std::string_view text) {
  CtVersion version;
  const char* next = text.data();
  const char* end = text.data() + text.size();
  size_t count = 0;
  for (; count < version.parts.size(); ++count) {
    const auto [rest, error] = std::from_chars(next, end, version.parts[count]);
    if (error != std::errc()) break;
    next = rest;
    if (next == end || *next != '.') {
      ++count;
      break;
    }
    ++next;
  }
  if (count < 2) return std::nullopt;
  return version;
}

Result<CtConfig> ParseCtConfig(const QuantizationConfig& config) {
  const Json& fields = *config.fields;
  CtConfig parsed;
  parsed.where = config.where;

  Status status = RefuseFeatures(fields, config.where);
  if (!status.ok()) return status;
  const Result<bool> rotated = ParseTransforms(fields, config.where);
  if (!rotated.ok()) return rotated.status();
  parsed.rotated = *rotated;

  const Result<std::optional<std::string>> version =
      OptionalString(fields, "version", config.where);
  if (!version.ok()) return version.status();
  if (*version) {
    parsed.version = ParseCtVersion(**version);
    if (!parsed.version) {
      return Malformed(FieldPath(config.where, "version"), "the field is not a version")
          .Found(fmt::format("\"{}\"", Printable(**version)))
          .Expected("MAJOR.MINOR.PATCH")
          .Id(FindingId("config-field-invalid"));
    }
  }
  const Result<std::optional<std::string>> stored_status =
      OptionalString(fields, "quantization_status", config.where);
  if (!stored_status.ok()) return stored_status.status();
  parsed.status = LowerCase(stored_status->value_or(""));
  parsed.has_kv_cache_scheme = JsonMember(fields, "kv_cache_scheme") != nullptr;

  Result<std::vector<CtGroup>> groups = ParseGroups(fields, config.where);
  if (!groups.ok()) return groups.status();
  parsed.groups = *std::move(groups);
  status = ResolveFormats(fields, config.where, parsed.groups);
  if (!status.ok()) return status;

  if (const Json* ignore = JsonMember(fields, "ignore")) {
    Result<std::vector<ConfigPattern>> patterns =
        ParsePatterns(*ignore, FieldPath(config.where, "ignore"));
    if (!patterns.ok()) return patterns.status();
    parsed.ignore = *std::move(patterns);
  }
  return parsed;
}

}  // namespace prepack
