#include "prepack/formats/fp8/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp4/module.h"
#include "prepack/formats/module_match.h"

namespace prepack::fp8 {

namespace {

Result<Block> ParseFp8Block(const Json& fields, std::string_view where) {
  const Json* value = JsonMember(fields, "weight_block_size");
  if (value == nullptr) return Block();
  std::array<uint64_t, 2> block = {};
  bool sound = value->is_array() && value->size() == 2;
  for (size_t i = 0; sound && i < 2; ++i) {
    sound = (*value)[i].is_number_unsigned() && (*value)[i].get<uint64_t>() > 0;
    if (sound) block[i] = (*value)[i].get<uint64_t>();
  }
  if (sound) return Block(block);
  return Malformed(FieldPath(where, "weight_block_size"), "the block is not two positive numbers")
      .Found(ShowJson(*value))
      .Expected("[rows, columns]")
      .Id(FindingId("config-field-invalid"));
}

// The keyword in lower case; nullopt when the key is absent.
Result<std::optional<std::string>> Keyword(const Json& fields, std::string_view key,
                                           std::string_view where) {
  Result<std::optional<std::string>> value = OptionalString(fields, key, where);
  if (value.ok() && *value) return std::optional(LowerCase(**value));
  return value;
}

// DeepSeek writes `fmt: e4m3`, MiniMax `fmt: float8_e4m3fn`, GPTQModel `format: float8_e4m3fn`.
Status CheckFp8Format(const Json& fields, std::string_view where) {
  static constexpr std::array<std::string_view, 5> kE4M3 = {"e4m3", "e4m3fn", "float8_e4m3",
                                                            "float8_e4m3fn", "fp8"};
  for (const std::string_view key : {"fmt", "format"}) {
    PREPACK_TRY_ASSIGN(const std::optional<std::string> format, Keyword(fields, key, where));
    const std::string name = format.value_or("e4m3");
    if (std::ranges::find(kE4M3, name) != kE4M3.end()) continue;
    return Unsupported(FieldPath(where, key), "prepack reads only E4M3 weights")
        .Found(fmt::format("\"{}\"", Printable(name)))
        .Expected("e4m3 or float8_e4m3fn")
        .Id(FindingId("scheme-unsupported"));
  }
  return {};
}

// GPTQModel's key, and the only value that any of its versions has.
Result<bool> ParseDivides(const Json& fields, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> semantics,
                     Keyword(fields, "weight_scale_semantics", where));
  if (!semantics) return false;
  if (*semantics == "inverse") return true;
  return UnknownKeyword(where, "weight_scale_semantics", *semantics, "\"inverse\"");
}

Result<Config::Activations> ParseFp8Activations(const Json& fields, bool is_gptqmodel,
                                                std::string_view where) {
  using enum Config::Activations;
  PREPACK_TRY_ASSIGN(const std::optional<std::string> scheme,
                     Keyword(fields, "activation_scheme", where));
  // GPTQModel quantizes weights only, and says nothing of activations.
  if (!scheme) return is_gptqmodel ? kNone : kDynamic;
  if (*scheme == "dynamic") return kDynamic;
  if (*scheme == "static") return kStatic;
  return UnknownKeyword(where, "activation_scheme", *scheme, "dynamic or static");
}

Result<bool> ParseByteExponents(const Json& fields, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> format, Keyword(fields, "scale_fmt", where));
  const std::string name = format.value_or("float");
  if (name == "float" || name == "ue8m0") return name == "ue8m0";
  return UnknownKeyword(where, "scale_fmt", name, "float or ue8m0");
}

Result<Rule> ParseFp8Rule(const std::string& text, const Json& overrides,
                          const std::string& where) {
  const std::string place = FieldPath(where, Printable(text));
  const bool is_signed = text.starts_with("-:") || text.starts_with("+:");
  PREPACK_TRY_ASSIGN(ModuleRegex regex,
                     ModuleRegex::Compile(std::string_view(text).substr(is_signed ? 2 : 0), place));
  Rule rule{.text = text, .regex = std::move(regex), .exclude = text.starts_with("-:")};
  if (rule.exclude || overrides == Json(false)) {
    rule.exclude = true;
    return rule;
  }
  PREPACK_TRY(RequireObject(overrides, place));
  PREPACK_TRY(CheckFp8Format(overrides, place));
  const Result<bool> divides = ParseDivides(overrides, place);
  if (!divides.ok()) return divides.status();
  PREPACK_TRY_ASSIGN(const std::optional<std::string> method,
                     Keyword(overrides, "weight_scale_method", place));
  PREPACK_TRY_ASSIGN(const Block block, ParseFp8Block(overrides, place));
  rule.block = block;
  // Another method than blocks leaves the block of the whole model behind.
  rule.has_block = block.has_value() || (method && *method != "block");
  return rule;
}

Result<std::vector<Rule>> ParseFp8Rules(const Json& fields, std::string_view where) {
  constexpr size_t kMaxRules = 4096;  // each is tried on every module
  std::vector<Rule> rules;
  const Json* dynamic = JsonMember(fields, "dynamic");
  if (dynamic == nullptr) return rules;
  const std::string place = FieldPath(where, "dynamic");
  PREPACK_TRY(RequireObject(*dynamic, place));
  if (dynamic->size() > kMaxRules) {
    return Unsupported(place, "too many rules")
        .Found(std::to_string(dynamic->size()))
        .Expected(fmt::format("at most {}", kMaxRules))
        .Id(FindingId("config-too-large"));
  }
  for (const auto& [text, overrides] : dynamic->items()) {
    PREPACK_TRY_ASSIGN(Rule rule, ParseFp8Rule(text, overrides, place));
    rules.push_back(std::move(rule));
  }
  return rules;
}

// Scales of channels, and activations that are quantized per token, below a bound that no kernel of
// ours needs.
Result<Config> ParseFbgemmConfig(const QuantizationConfig& declared) {
  Config config;
  config.where = declared.where;
  PREPACK_TRY_ASSIGN(config.ignored,
                     OptionalStrings(*declared.fields, {"modules_to_not_convert"}, declared.where));
  return config;
}

// MX has one block only, which the config need not say.
Status SetMxBlock(Config& config) {
  constexpr std::array<uint64_t, 2> kOnly = {1, fp4::kMxGroup};
  config.mx = true;
  if (config.block.value_or(kOnly) == kOnly) {
    config.block = kOnly;
    return {};
  }
  return Unsupported(FieldPath(config.where, "weight_block_size"),
                     "MXFP8 with other groups is not supported")
      .Found(fmt::format("[{}, {}]", (*config.block)[0], (*config.block)[1]))
      .Expected(fmt::format("[1, {}]", fp4::kMxGroup))
      .Id(FindingId("scheme-unsupported"));
}

Result<Config> ParseFp8Config(const QuantizationConfig& declared) {
  if (declared.method == "fbgemm-fp8") return ParseFbgemmConfig(declared);
  const Json& fields = *declared.fields;
  const std::string& where = declared.where;
  Config config;
  config.where = where;
  Status status = CheckFp8Format(fields, where);
  const auto take = [&status](auto result, auto& to) {
    if (result.ok()) {
      to = *std::move(result);
    } else if (status.ok()) {
      status = result.status();
    }
  };
  take(ParseDivides(fields, where), config.scale_divides);
  take(ParseFp8Activations(fields, config.scale_divides, where), config.activations);
  take(ParseByteExponents(fields, where), config.byte_exponents);
  take(ParseFp8Block(fields, where), config.block);
  take(OptionalStrings(fields, {"modules_to_not_convert", "ignored_layers"}, where),
       config.ignored);
  take(OptionalStrings(fields, {"modules_to_convert"}, where), config.embeddings);
  take(ParseFp8Rules(fields, where), config.rules);
  if (status.ok() && declared.method == "mxfp8") status = SetMxBlock(config);
  if (!status.ok()) return status;
  return config;
}

std::string ShowBlock(const Block& block) {
  return block ? fmt::format("[{}, {}]", (*block)[0], (*block)[1]) : "absent";
}

std::string ShowActivations(Config::Activations activations) {
  switch (activations) {
    case Config::Activations::kNone:
      return "absent";
    case Config::Activations::kDynamic:
      return "dynamic";
    case Config::Activations::kStatic:
      return "static";
  }
  return "";
}

std::string ShowRules(const std::vector<Rule>& rules) {
  std::string text;
  for (const Rule& rule : rules) {
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", Printable(rule.text));
    if (rule.has_block) text += fmt::format(" with block {}", ShowBlock(rule.block));
  }
  return text.empty() ? "no rules" : text;
}

// Lists of what is not quantized may differ: the tensors win over them anyway.
Status CompareCopy(const Config& first, const Config& copy) {
  struct Field {
    std::string_view key;
    std::string ours;
    std::string theirs;
  };
  const auto semantics = [](const Config& config) {
    return std::string(config.scale_divides ? "inverse" : "absent");
  };
  const auto format = [](const Config& config) {
    return std::string(config.byte_exponents ? "ue8m0" : "float");
  };
  const std::array<Field, 5> fields = {{
      {"weight_block_size", ShowBlock(first.block), ShowBlock(copy.block)},
      {"activation_scheme", ShowActivations(first.activations), ShowActivations(copy.activations)},
      {"weight_scale_semantics", semantics(first), semantics(copy)},
      {"scale_fmt", format(first), format(copy)},
      {"dynamic", ShowRules(first.rules), ShowRules(copy.rules)},
  }};
  for (const Field& field : fields) {
    if (field.ours == field.theirs) continue;
    return CopiesDisagree(FieldPath(copy.where, field.key), field.theirs, field.ours, first.where);
  }
  return {};
}

}  // namespace

Result<const Rule*> Config::RuleOf(std::string_view module) const {
  return FirstRuleOf(rules, module);
}

Result<Meaning> Config::MeaningOf(std::string_view module, const StoredTensor& scale) const {
  PREPACK_TRY_ASSIGN(const Rule* rule, RuleOf(module));
  Meaning meaning;
  if (mx) {
    meaning.granularity = Granularity::kGroup;
    meaning.group_size = fp4::kMxGroup;
  } else {
    meaning.block = rule != nullptr && rule->has_block ? rule->block : block;
  }
  if (scale_divides) {
    meaning.form = ScaleForm::kDivisor;
  } else if (mx || IsExponent(scale)) {
    meaning.form = ScaleForm::kExponent;
  }
  if (activations == Activations::kNone) return meaning;
  ActivationScheme& scheme = meaning.activations;
  scheme.type = ActivationType::kFloat;
  scheme.bits = 8;
  scheme.dynamic = activations == Activations::kDynamic;
  if (!scheme.dynamic) {
    scheme.granularity = ActivationGranularity::kTensor;
  } else if (mx || meaning.block) {
    scheme.granularity = ActivationGranularity::kGroup;
    scheme.group_size = mx ? fp4::kMxGroup : (*meaning.block)[1];
  }
  return meaning;
}

bool Config::IsExponent(const StoredTensor& scale) const {
  return scale.dtype == DType::kF8E8M0 || (scale.dtype == DType::kU8 && byte_exponents);
}

bool Config::NamesEmbedding(std::string_view module) const {
  return std::ranges::any_of(
      embeddings, [&](const std::string& name) { return !name.empty() && module.ends_with(name); });
}

Result<bool> Config::Excludes(std::string_view module) const {
  if (std::ranges::find(ignored, module) != ignored.end()) return true;
  PREPACK_TRY_ASSIGN(const Rule* rule, RuleOf(module));
  return rule != nullptr && rule->exclude;
}

Result<Config> ParseConfigs(std::span<const QuantizationConfig> declared) {
  Result<Config> first = ParseFp8Config(declared.front());
  if (!first.ok()) return first;
  for (size_t i = 1; i < declared.size(); ++i) {
    PREPACK_TRY_ASSIGN(const Config copy, ParseFp8Config(declared[i]));
    PREPACK_TRY(CompareCopy(*first, copy));
  }
  return first;
}

}  // namespace prepack::fp8
