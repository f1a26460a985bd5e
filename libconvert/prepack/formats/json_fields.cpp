#include "prepack/formats/json_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "prepack/formats/finding.h"

namespace prepack {

std::string FieldPath(std::string_view where, std::string_view key) {
  return fmt::format("{}.{}", where, key);
}

bool SameJson(const Json& a, const Json& b) {
  // Objects of this type are sorted.
  return nlohmann::json(a) == nlohmann::json(b);
}

std::string ShowJson(const Json& value) {
  constexpr size_t kMaxShown = 80;
  // Containers are named, not printed: dumping a large one costs memory for nothing.
  if (value.is_object()) return fmt::format("an object of {} members", value.size());
  if (value.is_array()) return fmt::format("a list of {} values", value.size());
  return Printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), kMaxShown);
}

namespace {

Status WrongType(const Json& value, std::string_view key, std::string_view where,
                 std::string_view expected) {
  return Malformed(FieldPath(where, key), "the field has the wrong type")
      .Found(ShowJson(value))
      .Expected(expected)
      .Id(FindingId("config-field-invalid"));
}

}  // namespace

Result<std::optional<bool>> OptionalBool(const Json& object, std::string_view key,
                                         std::string_view where) {
  const Json* value = JsonMember(object, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return WrongType(*value, key, where, "true or false");
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<int64_t>> OptionalInt(const Json& object, std::string_view key,
                                           std::string_view where) {
  const Json* value = JsonMember(object, key);
  if (value == nullptr) return std::optional<int64_t>();
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() ||
       value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits) return WrongType(*value, key, where, "an integer");
  return std::optional<int64_t>(value->get<int64_t>());
}

Result<std::optional<std::string>> OptionalString(const Json& object, std::string_view key,
                                                  std::string_view where) {
  const Json* value = JsonMember(object, key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return WrongType(*value, key, where, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

Status RequireObject(const Json& value, std::string_view where) {
  if (value.is_object()) return {};
  return Malformed(where, "the field has the wrong type")
      .Found(ShowJson(value))
      .Expected("an object")
      .Id(FindingId("config-field-invalid"));
}

Status RefuseUnknownKeys(const Json& object, std::span<const std::string_view> known,
                         std::string_view where) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Unsupported(where, fmt::format("unknown key \"{}\"", Printable(key)))
        .Expected(fmt::format("only {}", fmt::join(known, ", ")))
        .Hint("The key may change what the weights mean, so prepack does not skip it")
        .Id(FindingId("config-key-unknown"));
  }
  return {};
}

Status UnknownKeyword(std::string_view where, std::string_view key, std::string_view value,
                      std::string_view expected) {
  return Unsupported(FieldPath(where, key), "unknown keyword")
      .Found(fmt::format("\"{}\"", Printable(value)))
      .Expected(expected)
      .Id(FindingId("config-keyword-unknown"));
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace prepack
