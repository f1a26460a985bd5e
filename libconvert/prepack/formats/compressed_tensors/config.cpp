#include "prepack/formats/compressed_tensors/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"

namespace prepack::ct {

namespace {

// Formats that a group can be stored in. All are known by name, whether or not they are read.
constexpr std::array<std::string_view, 9> kGroupFormats = {
    kCtDense, kCtPackQuantized, kCtIntQuantized, kCtFloatQuantized, kCtNaiveQuantized,
    kCtNvfp4, kCtMxfp8,         kCtMxfp4,        kCtNvfp4E5m3};
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
  return Unsupported(where, "sparse weights are not supported")
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
      .Hint("A newer or different tool than prepack knows wrote this checkpoint")
      .Id(FindingId("storage-unsupported"));
}

// What compressed-tensors would choose when no format is given (config/format.py).
std::string_view InferFormat(const Group& group) {
  if (!group.weights) return kCtDense;
  const Args& weights = *group.weights;
  if (weights.type == Type::kFloat) {
    if (weights.num_bits == 4) {
      return weights.group_size == kMxGroup ? kCtMxfp4 : kCtNvfp4;
    }
    if (weights.strategy == Strategy::kGroup && weights.group_size == kMxGroup) {
      return kCtMxfp8;
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
    PREPACK_TRY_ASSIGN(ConfigPattern pattern,
                       ConfigPattern::Parse(list[i].get_ref<const std::string&>(), entry));
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

Result<std::optional<Args>> ParseOptionalArgs(const Json& scheme, std::string_view key, Role role,
                                              std::string_view where) {
  const Json* value = JsonMember(scheme, key);
  if (value == nullptr) return std::optional<Args>();
  PREPACK_TRY_ASSIGN(Args args, ParseArgs(*value, role, FieldPath(where, key)));
  return std::optional<Args>(args);
}

// {"targets": […], "weights": {…}, …}
Status ParseSchemeObject(const Json& scheme, Group& group) {
  PREPACK_TRY(RefuseUnknownKeys(scheme, kGroupKeys, group.where));
  const Json* targets = JsonMember(scheme, "targets");
  if (targets == nullptr) {
    return Malformed(group.where, "the group has no targets").Id(FindingId("config-field-invalid"));
  }
  PREPACK_TRY_ASSIGN(std::vector<ConfigPattern> patterns,
                     ParsePatterns(*targets, FieldPath(group.where, "targets")));
  group.targets = std::move(patterns);

  const std::array<std::pair<std::string_view, std::optional<Args>*>, 3> parts = {{
      {"weights", &group.weights},
      {"input_activations", &group.input_activations},
      {"output_activations", &group.output_activations},
  }};
  for (const auto& [key, args] : parts) {
    const Role role = args == &group.weights ? Role::kWeights : Role::kActivations;
    PREPACK_TRY_ASSIGN(const std::optional<Args> parsed,
                       ParseOptionalArgs(scheme, key, role, group.where));
    *args = parsed;
  }

  PREPACK_TRY_ASSIGN(const std::optional<std::string> format,
                     OptionalString(scheme, "format", group.where));
  if (!format) return {};
  group.format = LowerCase(*format);
  return CheckFormat(group.format, FieldPath(group.where, "format"));
}

// "W4A16": ["Linear"], the form before 0.5: the name of the group is a preset.
Status ParsePresetList(const Json& targets, Group& group) {
  std::optional<Preset> preset = FindPreset(group.name);
  if (!preset) {
    return Unsupported(group.where, "unknown preset")
        .Found(fmt::format("\"{}\"", Printable(group.name)))
        .Expected("a preset such as W4A16, or an object with targets and weights")
        .Id(FindingId("config-keyword-unknown"));
  }
  PREPACK_TRY_ASSIGN(std::vector<ConfigPattern> patterns, ParsePatterns(targets, group.where));
  group.targets = std::move(patterns);
  group.preset = true;
  group.weights = preset->weights;
  group.input_activations = preset->input_activations;
  return {};
}

Result<std::vector<Group>> ParseGroups(const Json& fields, std::string_view where) {
  std::vector<Group> groups;
  const Json* value = JsonMember(fields, "config_groups");
  if (value == nullptr) return groups;
  const std::string groups_where = FieldPath(where, "config_groups");
  Status status = RequireObject(*value, groups_where);
  if (!status.ok()) return status;
  for (const auto& [name, scheme] : value->items()) {
    Group group;
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
Status ResolveFormats(const Json& fields, std::string_view where, std::vector<Group>& groups) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> format,
                     OptionalString(fields, "format", where));
  std::string whole = LowerCase(format.value_or("fakequant"));
  if (whole == kMixedPrecision || whole == kCtDense || whole == "fakequant") whole.clear();
  if (!whole.empty()) {
    PREPACK_TRY(CheckFormat(whole, FieldPath(where, "format")));
  }
  for (Group& group : groups) {
    if (group.format.empty()) group.format = whole;
    if (group.format.empty()) group.format = InferFormat(group);
  }
  return {};
}

// Features that change what the stored numbers mean, whatever the groups say.
Status RefuseFeatures(const Json& fields, const std::string& where) {
  if (const Json* sparsity = JsonMember(fields, "sparsity_config")) {
    const std::string field = FieldPath(where, "sparsity_config");
    PREPACK_TRY(RequireObject(*sparsity, field));
    PREPACK_TRY_ASSIGN(const std::optional<std::string> format,
                       OptionalString(*sparsity, "format", field));
    const std::string name = LowerCase(format.value_or(sparsity->empty() ? "dense" : "missing"));
    if (name != kCtDense) return RefuseSparsity(FieldPath(field, "format"), name);
  }
  if (const Json* flavor = JsonMember(fields, "fp8_dtype_flavor")) {
    return Unsupported(FieldPath(where, "fp8_dtype_flavor"),
                       "FP8 weights of this flavour are not supported")
        .Found(ShowJson(*flavor))
        .Hint("Export them as OCP E4M3 (`float8_e4m3fn`)")
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
  PREPACK_TRY(RequireObject(apply, where));
  PREPACK_TRY_ASSIGN(const std::optional<std::string> location,
                     OptionalString(apply, "location", where));
  const std::string name = location.value_or("");
  if (name == "weight_input" || name == "weight_output") return {};
  return RefuseTransform(
      FieldPath(where, "location"), Json(name),
      "the model rotates activations at run time, which prepack does not support");
}

// True when there are rotations, and all of them are folded into the stored weights. Others are
// kUnsupported.
Result<bool> ParseTransforms(const Json& fields, const std::string& where) {
  const Json* transforms = JsonMember(fields, "transform_config");
  if (transforms == nullptr) return false;
  const std::string field = FieldPath(where, "transform_config");
  PREPACK_TRY(RequireObject(*transforms, field));
  if (transforms->empty()) return false;
  const Json* schemes = JsonMember(*transforms, "config_groups");
  if (schemes == nullptr || !schemes->is_object() || transforms->size() != 1) {
    return RefuseTransform(field, *transforms, "it does not say where to rotate the model");
  }
  for (const auto& [name, scheme] : schemes->items()) {
    const std::string at = FieldPath(FieldPath(field, "config_groups"), name);
    const Json* apply = JsonMember(scheme, "apply");
    if (apply == nullptr || !apply->is_array() || apply->empty()) {
      return RefuseTransform(at, scheme, "it does not say where to rotate the model");
    }
    for (size_t i = 0; i < apply->size(); ++i) {
      PREPACK_TRY(RequireFolded((*apply)[i], fmt::format("{}.apply[{}]", at, i)));
    }
  }
  return !schemes->empty();
}

}  // namespace

std::optional<Version> ParseVersion(std::string_view text) {
  Version version;
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

Result<Config> ParseConfig(const QuantizationConfig& config) {
  const Json& fields = *config.fields;
  Config parsed;
  parsed.where = config.where;

  PREPACK_TRY(RefuseFeatures(fields, config.where));
  PREPACK_TRY_ASSIGN(const bool rotated, ParseTransforms(fields, config.where));
  parsed.rotated = rotated;

  PREPACK_TRY_ASSIGN(const std::optional<std::string> version,
                     OptionalString(fields, "version", config.where));
  if (version) {
    parsed.version = ParseVersion(*version);
    if (!parsed.version) {
      return Malformed(FieldPath(config.where, "version"), "the field is not a version")
          .Found(fmt::format("\"{}\"", Printable(*version)))
          .Expected("MAJOR.MINOR.PATCH")
          .Id(FindingId("config-field-invalid"));
    }
  }
  PREPACK_TRY_ASSIGN(const std::optional<std::string> stored_status,
                     OptionalString(fields, "quantization_status", config.where));
  parsed.status = LowerCase(stored_status.value_or(""));
  parsed.has_kv_cache_scheme = JsonMember(fields, "kv_cache_scheme") != nullptr;

  PREPACK_TRY_ASSIGN(std::vector<Group> groups, ParseGroups(fields, config.where));
  parsed.groups = std::move(groups);
  PREPACK_TRY(ResolveFormats(fields, config.where, parsed.groups));

  if (const Json* ignore = JsonMember(fields, "ignore")) {
    PREPACK_TRY_ASSIGN(std::vector<ConfigPattern> patterns,
                       ParsePatterns(*ignore, FieldPath(config.where, "ignore")));
    parsed.ignore = std::move(patterns);
  }
  return parsed;
}

namespace {

Status Conflict(const std::string& where, const std::string& found, const std::string& expected,
                const Config& first) {
  return CopiesDisagree(where, found, expected, first.where);
}

std::string ShowArgs(const std::optional<Args>& args) {
  return args ? DescribeArgs(*args) : "none";
}

std::vector<std::string> Targets(const Group& group) {
  std::vector<std::string> targets;
  for (const ConfigPattern& pattern : group.targets) {
    targets.push_back(fmt::format("\"{}\"", Printable(pattern.text())));
  }
  return targets;
}

std::string ShowTargets(const Group& group) {
  constexpr size_t kMaxShown = 4;
  std::vector<std::string> targets = Targets(group);
  if (targets.size() > kMaxShown) {
    targets.resize(kMaxShown);
    targets.emplace_back("…");
  }
  return fmt::format("[{}]", fmt::join(targets, ", "));
}

Status CompareGroup(const Group& ours, const Group& theirs, const Config& first) {
  if (Targets(ours) != Targets(theirs)) {
    return Conflict(FieldPath(theirs.where, "targets"), ShowTargets(theirs), ShowTargets(ours),
                    first);
  }
  if (ours.weights != theirs.weights) {
    return Conflict(FieldPath(theirs.where, "weights"), ShowArgs(theirs.weights),
                    ShowArgs(ours.weights), first);
  }
  if (ours.input_activations != theirs.input_activations) {
    return Conflict(FieldPath(theirs.where, "input_activations"),
                    ShowArgs(theirs.input_activations), ShowArgs(ours.input_activations), first);
  }
  if (ours.output_activations != theirs.output_activations) {
    return Conflict(FieldPath(theirs.where, "output_activations"),
                    ShowArgs(theirs.output_activations), ShowArgs(ours.output_activations), first);
  }
  if (ours.format == theirs.format) return {};
  return Conflict(FieldPath(theirs.where, "format"), theirs.format, ours.format, first);
}

// Some writers sort them, others do not.
std::vector<const Group*> GroupsByName(const Config& config) {
  std::vector<const Group*> groups;
  for (const Group& group : config.groups) groups.push_back(&group);
  std::ranges::sort(groups, {}, &Group::name);
  return groups;
}

std::string ShowVersion(const Version& version) {
  return fmt::format("{}", fmt::join(version.parts, "."));
}

// Versions between the same two changes of what is stored mean the same.
bool MeanTheSame(const Version& a, const Version& b) {
  return std::ranges::all_of(kCtStorageChanges,
                             [&](const Version& change) { return (a < change) == (b < change); });
}

Status CompareCopy(const Config& first, const Config& copy) {
  if (first.groups.size() != copy.groups.size()) {
    return Conflict(FieldPath(copy.where, "config_groups"),
                    fmt::format("{} groups", copy.groups.size()),
                    fmt::format("{} groups", first.groups.size()), first);
  }
  const std::vector<const Group*> ours = GroupsByName(first);
  const std::vector<const Group*> theirs = GroupsByName(copy);
  for (size_t i = 0; i < ours.size(); ++i) {
    PREPACK_TRY(CompareGroup(*ours[i], *theirs[i], first));
  }
  if (!first.version || !copy.version || MeanTheSame(*first.version, *copy.version)) return {};
  return Conflict(FieldPath(copy.where, "version"), ShowVersion(*copy.version),
                  ShowVersion(*first.version), first);
}

}  // namespace

Result<Config> ParseConfigs(std::span<const QuantizationConfig> configs) {
  Result<Config> first = ParseConfig(configs.front());
  if (!first.ok()) return first;
  for (size_t i = 1; i < configs.size(); ++i) {
    PREPACK_TRY_ASSIGN(const Config copy, ParseConfig(configs[i]));
    PREPACK_TRY(CompareCopy(*first, copy));
    if (!first->version) first->version = copy.version;
  }
  return first;
}

Matcher::Matcher(const Config& config) {
  // A target that stands in two groups belongs to the later one, in both libraries, but keeps the
  // place of the first: that is how a Python dict behaves.
  std::unordered_map<std::string_view, size_t> places;
  for (const Group& group : config.groups) {
    for (const ConfigPattern& pattern : group.targets) {
      const auto [it, added] = places.try_emplace(pattern.text(), targets_.size());
      if (added) {
        targets_.push_back({&pattern, &group});
      } else {
        targets_[it->second].group = &group;
      }
    }
  }
  for (const Target& target : targets_) {
    if (target.pattern->kind() == ConfigPattern::Kind::kRegex) {
      regexes_.push_back(target);
      continue;
    }
    names_.emplace(target.pattern->text(), target.group);
    if (target.pattern->LooksLikeClass()) classes_.push_back(target);
  }
  const auto alphabetical = [](const Target& a, const Target& b) {
    return a.pattern->text() < b.pattern->text();
  };
  std::sort(regexes_.begin(), regexes_.end(), alphabetical);
  std::sort(classes_.begin(), classes_.end(), alphabetical);
  for (const ConfigPattern& pattern : config.ignore) {
    if (pattern.kind() == ConfigPattern::Kind::kRegex) {
      ignored_regexes_.push_back(&pattern);
      continue;
    }
    ignored_names_.insert(pattern.text());
    if (pattern.LooksLikeClass()) ignored_classes_.push_back(&pattern);
  }
}

Result<const Group*> Matcher::GroupByName(std::span<const Target> targets,
                                          std::string_view module) {
  for (const Target& target : targets) {
    PREPACK_TRY_ASSIGN(const bool matches, target.pattern->MatchesName(module));
    if (matches) return target.group;
  }
  return nullptr;
}

const Group* Matcher::GroupByClass(std::span<const Target> targets, ModuleClass module_class) {
  for (const Target& target : targets) {
    if (target.pattern->MatchesClass(module_class)) return target.group;
  }
  return nullptr;
}

Result<const Group*> Matcher::GroupOf(std::string_view module, ModuleClass module_class) const {
  if (const auto it = names_.find(module); it != names_.end()) return it->second;
  Result<const Group*> group = GroupByName(regexes_, module);
  if (!group.ok() || *group != nullptr) return group;
  return GroupByClass(classes_, module_class);
}

Result<const Group*> Matcher::GroupOfVllm(std::string_view module, ModuleClass module_class) const {
  Result<const Group*> group = GroupByName(targets_, module);
  if (!group.ok() || *group != nullptr) return group;
  return GroupByClass(targets_, module_class);
}

Result<bool> Matcher::Ignored(std::string_view module, ModuleClass module_class) const {
  if (ignored_names_.contains(module)) return true;
  for (const ConfigPattern* entry : ignored_regexes_) {
    Result<bool> matches = entry->MatchesName(module);
    if (!matches.ok() || *matches) return matches;
  }
  return std::any_of(ignored_classes_.begin(), ignored_classes_.end(),
                     [&](const auto* entry) { return entry->MatchesClass(module_class); });
}

}  // namespace prepack::ct
