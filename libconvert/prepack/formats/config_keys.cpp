#include "prepack/formats/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/format.h"

namespace prepack {

namespace {

// Every declaration may name its method, and nest once more.
constexpr std::string_view kAnyKeys = "quant_method method quantization_config";

// What rules for single modules may hold beside what the whole config may.
constexpr std::string_view kRuleKeys = "clip fixed_by_user in_blocks scheme tmp_dtype";

bool Contains(Keys keys, std::string_view key) {
  while (!keys.empty()) {
    const size_t end = std::min(keys.find(' '), keys.size());
    if (keys.substr(0, end) == key) return true;
    keys.remove_prefix(std::min(end + 1, keys.size()));
  }
  return false;
}

bool IsKnown(const FormatKeys& format, std::string_view key, bool in_rule) {
  return Contains(kAnyKeys, key) || (in_rule && Contains(kRuleKeys, key)) ||
         std::ranges::any_of(format.known, [&](Keys keys) { return Contains(keys, key); });
}

// Neither null, false nor empty.
bool SaysSomething(const Json& value) {
  return !(value.is_null() || value == Json(false) || value == Json("") ||
           (value.is_structured() && value.empty()));
}

Status CheckKeys(const Format& format, const Json& fields, const std::string& where, bool in_rule,
                 FindingTally& findings) {
  for (const auto& [key, value] : fields.items()) {
    if (!SaysSomething(value)) continue;
    const std::string lower = LowerCase(key);
    const auto meant = std::ranges::find(format.keys.meant, lower, &MeantKey::key);
    if (meant != format.keys.meant.end()) {
      return Unsupported(FieldPath(where, Printable(key)), meant->what)
          .Found(ShowJson(value))
          .Hint("Quantize the model without it")
          .Id(meant->id);
    }
    if (IsKnown(format.keys, lower, in_rule)) continue;
    findings.Add("config-key-unread", FieldPath(where, Printable(key)),
                 fmt::format("no known writer of {} checkpoints writes this key, and it was not "
                             "read ({})",
                             format.id, ShowJson(value)));
  }
  return {};
}

}  // namespace

Status CheckConfigKeys(const QuantizationConfig& config, FindingTally& findings) {
  const auto format = std::ranges::find(AllFormats(), config.method, &Format::id);
  if (format == AllFormats().end() || !config.fields->is_object()) return {};
  Status status = CheckKeys(*format, *config.fields, config.where, false, findings);
  for (const std::string_view key : {"dynamic", "extra_config"}) {
    const Json* rules = JsonMember(*config.fields, key);
    if (rules == nullptr || !rules->is_object()) continue;
    for (const auto& [name, rule] : rules->items()) {
      if (!status.ok()) return status;
      if (!rule.is_object()) continue;
      const std::string place = FieldPath(FieldPath(config.where, key), Printable(name));
      status = CheckKeys(*format, rule, place, true, findings);
    }
  }
  return status;
}

}  // namespace prepack
