#include "prepack/formats/gptq/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"

namespace prepack::gptq {

namespace {

std::string Show(int64_t value) {
  return std::to_string(value);
}
std::string Show(bool value) {
  return value ? "true" : "false";
}
std::string Show(const std::string& value) {
  return fmt::format("\"{}\"", Printable(value));
}

// The value of the first copy that has one; copies that disagree are an error.
class Merger {
 public:
  explicit Merger(std::span<const Declaration> copies) : copies_(copies) {}

  template <typename T>
  std::optional<T> Take(std::string_view key, std::optional<T> Declaration::*member) {
    const Declaration* first = nullptr;
    for (const Declaration& copy : copies_) {
      if (!(copy.*member)) continue;
      if (first == nullptr) {
        first = &copy;
      } else if (*(copy.*member) != *(first->*member)) {
        Conflict(key, copy.where, Show(*(copy.*member)), first->where, Show(*(first->*member)));
      }
    }
    return first == nullptr ? std::nullopt : first->*member;
  }

  // The object of that kind and the place of its copy; {nullptr, ""} when there is none.
  std::pair<const Json*, std::string> TakeJson(std::string_view key,
                                               const Json* Declaration::*member) {
    const Declaration* first = nullptr;
    for (const Declaration& copy : copies_) {
      if (copy.*member == nullptr) continue;
      if (first == nullptr) {
        first = &copy;
      } else if (!SameJson(*(copy.*member), *(first->*member))) {
        Conflict(key, copy.where, ShowJson(*(copy.*member)), first->where,
                 ShowJson(*(first->*member)));
      }
    }
    if (first == nullptr) return {nullptr, ""};
    return {first->*member, FieldPath(first->where, key)};
  }

  // The same for rules, of which a copy that has none says that there are none.
  std::pair<const Json*, std::string> TakeRules(std::string_view key,
                                                const Json* Declaration::*member) {
    const auto rules = [&](const Declaration& copy) {
      const Json* value = copy.*member;
      return value == nullptr || value->empty() || *value == Json(false) ? nullptr : value;
    };
    const auto with = std::ranges::find_if(copies_, rules);
    const auto without = std::ranges::find_if_not(copies_, rules);
    if (with == copies_.end()) return {nullptr, ""};
    if (without != copies_.end()) {
      Conflict(key, with->where, ShowJson(*rules(*with)), without->where, "no rules");
    }
    return TakeJson(key, member);
  }

  const Status& status() const { return status_; }

 private:
  void Conflict(std::string_view key, std::string_view where, const std::string& found,
                std::string_view first_where, const std::string& expected) {
    if (!status_.ok()) return;
    status_ = CopiesDisagree(FieldPath(where, key), found, expected, first_where);
  }

  std::span<const Declaration> copies_;
  Status status_;
};

Result<uint32_t> CheckBits(int64_t bits, const std::string& where) {
  if (bits >= 2 && bits <= 8) return static_cast<uint32_t>(bits);
  return Malformed(where, "the number of bits is out of range")
      .Found(std::to_string(bits))
      .Expected("2 to 8")
      .Id(FindingId("config-field-invalid"));
}

Status ApplyFormat(const std::string& format, const std::string& where, Settings& settings) {
  if (format == "gptq") return {};
  if (format == "gptq_v2" || format == "gptq_p") {
    settings.zeros = Zeros::kStored;
    settings.planar = format == "gptq_p";
    return {};
  }
  return Unsupported(FieldPath(where, "checkpoint_format"),
                     fmt::format("weights in the format {} are not supported", Printable(format)))
      .Expected("gptq, gptq_v2 or gptq_p")
      .Hint(
          "prepack cannot repack formats that are tiled for a GPU kernel; use the checkpoint that "
          "this one was made from")
      .Id(FindingId("gptq-format"));
}

Result<Rule> ParseRule(const std::string& text, const Json& overrides, const std::string& where) {
  const std::string place = FieldPath(where, Printable(text));
  const bool signed_pattern = text.starts_with("-:") || text.starts_with("+:");
  PREPACK_TRY_ASSIGN(
      ModuleRegex regex,
      ModuleRegex::Compile(std::string_view(text).substr(signed_pattern ? 2 : 0), place));
  Rule rule{.text = text, .regex = std::move(regex)};
  if (text.starts_with("-:")) {
    rule.exclude = true;
    return rule;
  }
  PREPACK_TRY(RequireObject(overrides, place));
  PREPACK_TRY_ASSIGN(const Declaration declared,
                     ParseDeclaration({.where = place, .method = "gptq", .fields = &overrides}));
  if (declared.format) {
    return Unsupported(place, "prepack does not support a rule that changes the format")
        .Found(Show(*declared.format))
        .Id(FindingId("gptq-format"));
  }
  if (declared.bits) {
    const Result<uint32_t> bits = CheckBits(*declared.bits, FieldPath(place, "bits"));
    if (!bits.ok()) return bits.status();
  }
  rule.bits = declared.bits;
  rule.group_size = declared.group_size;
  rule.act_order = declared.act_order;
  rule.symmetric = declared.symmetric;
  return rule;
}

Status ParseRules(const Json& dynamic, const std::string& where, std::vector<Rule>& rules) {
  constexpr size_t kMaxRules = 4096;  // each is tried on every module
  if (dynamic.is_boolean() && !dynamic.get<bool>()) return {};
  PREPACK_TRY(RequireObject(dynamic, where));
  if (dynamic.size() > kMaxRules) {
    return Unsupported(where, "too many rules")
        .Found(std::to_string(dynamic.size()))
        .Expected(fmt::format("at most {}", kMaxRules))
        .Id(FindingId("config-too-large"));
  }
  for (const auto& [text, overrides] : dynamic.items()) {
    PREPACK_TRY_ASSIGN(Rule rule, ParseRule(text, overrides, where));
    rules.push_back(std::move(rule));
  }
  return {};
}

// Of two rules that match one module; `top` is what they override.
bool RulesMeanTheSame(const Rule& a, const Rule& b, const Settings& top) {
  if (a.exclude || b.exclude) return a.exclude == b.exclude;
  const auto same = [&](auto Rule::*member, auto inherited) {
    return (a.*member).value_or(inherited) == (b.*member).value_or(inherited);
  };
  return same(&Rule::bits, int64_t{top.bits}) && same(&Rule::group_size, top.group_size) &&
         same(&Rule::act_order, top.act_order) && same(&Rule::symmetric, top.symmetric);
}

std::vector<std::string_view> RuleKeys(const Json& object) {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// The orders of the copies of `dynamic`, which are equal but for that.
std::vector<RuleOrder> OtherOrders(const std::vector<Declaration>& copies, const Json& dynamic) {
  std::vector<RuleOrder> orders;
  const std::vector<std::string_view> ours = RuleKeys(dynamic);
  for (const Declaration& copy : copies) {
    if (copy.dynamic == nullptr || copy.dynamic == &dynamic) continue;
    std::optional<RuleOrder> order =
        OrderOfCopy(ours, RuleKeys(*copy.dynamic), FieldPath(copy.where, "dynamic"));
    if (order) orders.push_back(*std::move(order));
  }
  return orders;
}

// A list of names, or of lists of names.
Status Flatten(const Json& list, const std::string& where, std::vector<std::string>& names) {
  const auto wrong = [&](const Json& value) {
    return Malformed(where, "the field has the wrong type")
        .Found(ShowJson(value))
        .Expected("a list of names, or of lists of names")
        .Id(FindingId("config-field-invalid"));
  };
  if (!list.is_array()) return wrong(list);
  for (const Json& entry : list) {
    if (entry.is_string()) {
      names.push_back(entry.get<std::string>());
      continue;
    }
    if (!entry.is_array()) return wrong(entry);
    for (const Json& name : entry) {
      if (!name.is_string()) return wrong(name);
      names.push_back(name.get<std::string>());
    }
  }
  return {};
}

}  // namespace

Result<const Rule*> Config::RuleOf(std::string_view module) const {
  return FirstRuleOf(rules, module);
}

Status Config::ReportOrder(std::string_view module, const Rule& rule,
                           FindingTally& findings) const {
  for (const RuleOrder& order : other_orders) {
    PREPACK_TRY_ASSIGN(const size_t first,
                       FirstInOrder(order, static_cast<size_t>(&rule - rules.data()),
                                    [&](size_t i) { return rules[i].regex.MatchesStart(module); }));
    const Rule& other = rules[first];
    if (RulesMeanTheSame(rule, other, settings)) continue;
    findings.Add("config-order-differs", module, OrderDiffers(rule.text, other.text, order.where));
  }
  return {};
}

Settings Config::SettingsUnder(const Rule* rule) const {
  Settings own = settings;
  if (rule != nullptr && !rule->exclude) {
    if (rule->bits) own.bits = static_cast<uint32_t>(*rule->bits);
    own.group_size = rule->group_size.value_or(own.group_size);
    own.act_order = rule->act_order.value_or(own.act_order);
    own.symmetric = rule->symmetric.value_or(own.symmetric);
  }
  // Only planes can hold these widths, whatever the label says.
  if (own.bits >= 5 && own.bits <= 7) {
    own.planar = true;
    own.zeros = Zeros::kStored;
  }
  return own;
}

Result<Config> ParseConfigs(std::span<const QuantizationConfig> copies, FindingTally& findings) {
  std::vector<Declaration> declared;
  std::vector<std::string> producers;
  for (const QuantizationConfig& copy : copies) {
    PREPACK_TRY_ASSIGN(Declaration one, ParseDeclaration(copy));
    producers.insert(producers.end(), one.producers.begin(), one.producers.end());
    if (!one.activation.empty()) {
      findings.Add("gptq-activations", FieldPath(one.where, "activation"),
                   fmt::format("\"{}\" quantizes activations at run time; prepack reads the "
                               "weights and leaves activations in 16 bits",
                               Printable(one.activation)));
    }
    declared.push_back(std::move(one));
  }
  Merger merger(declared);
  const auto bits = merger.Take("bits", &Declaration::bits);
  const auto group_size = merger.Take("group_size", &Declaration::group_size);
  const auto act_order = merger.Take("desc_act", &Declaration::act_order);
  const auto symmetric = merger.Take("sym", &Declaration::symmetric);
  const auto format = merger.Take("checkpoint_format", &Declaration::format);
  const auto lm_head = merger.Take("lm_head", &Declaration::lm_head);
  const auto [dynamic, dynamic_where] = merger.TakeRules("dynamic", &Declaration::dynamic);
  const auto [blocks, blocks_where] =
      merger.TakeJson("modules_in_block_to_quantize", &Declaration::block_modules);
  if (!merger.status().ok()) return merger.status();

  Config config;
  config.settings.where = copies.front().where;
  const std::string& where = config.settings.where;
  PREPACK_TRY_ASSIGN(const uint32_t checked, CheckBits(bits.value_or(4), FieldPath(where, "bits")));
  config.settings.bits = checked;
  for (const auto& [key, missing, value] : {std::tuple{"bits", !bits, "4"},
                                            {"group_size", !group_size, "128"},
                                            {"sym", !symmetric, "true"}}) {
    if (!missing) continue;
    findings.Add("config-missing-default", FieldPath(where, key),
                 fmt::format("{} is missing; prepack used {}", key, value));
  }
  config.settings.group_size = group_size.value_or(128);
  config.settings.act_order = act_order.value_or(false);
  config.settings.symmetric = symmetric.value_or(true);
  config.settings.word_borrow = SubtractsWholeWords(producers);
  config.settings.field_wrap = WrapsFields(producers);
  config.settings.bits_from_tensors = IsOfAutoRound(producers);
  config.lm_head = lm_head.value_or(false);
  Status status = ApplyFormat(format.value_or("gptq"), where, config.settings);
  if (status.ok() && dynamic != nullptr) {
    status = ParseRules(*dynamic, dynamic_where, config.rules);
    if (status.ok()) config.other_orders = OtherOrders(declared, *dynamic);
  }
  if (status.ok() && blocks != nullptr) {
    status = Flatten(*blocks, blocks_where, config.block_modules);
  }
  if (!status.ok()) return status;
  return config;
}

}  // namespace prepack::gptq
