#include "prepack/container/json_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace prepack {

namespace {

bool IsText(const Json& value) {
  return value.is_string();
}
bool IsUint(const Json& value) {
  return value.is_number_unsigned();
}

}  // namespace

const Json* JsonFields::Any(std::string_view key) {
  if (!object_->is_object()) {
    Keep(Malformed(where_, "not an object").Found(object_->type_name()).Expected("object"));
    return nullptr;
  }
  const auto it = object_->find(key);
  if (it != object_->end()) return &*it;
  Keep(Malformed(where_, fmt::format("field \"{}\" is missing", key)));
  return nullptr;
}

const Json* JsonFields::Find(std::string_view key, bool (*fits)(const Json&),
                             std::string_view expected) {
  const Json* value = Any(key);
  if (value == nullptr || fits(*value)) return value;
  Keep(Malformed(where_, fmt::format("field \"{}\" has the wrong type", key))
           .Found(value->type_name())
           .Expected(expected));
  return nullptr;
}

std::string JsonFields::Text(std::string_view key) {
  const Json* value = Find(key, IsText, "string");
  return value == nullptr ? "" : value->get<std::string>();
}

uint64_t JsonFields::Uint(std::string_view key) {
  const Json* value = Find(key, IsUint, "an integer of 0 or more");
  return value == nullptr ? 0 : value->get<uint64_t>();
}

uint64_t JsonFields::Uint(std::string_view key, uint64_t low, uint64_t high) {
  const uint64_t value = Uint(key);
  if (value < low || value > high) {
    Keep(Malformed(where_, fmt::format("field \"{}\" is out of range", key))
             .Found(fmt::format("{}", value))
             .Expected(fmt::format("{} to {}", low, high)));
  }
  return value;
}

bool JsonFields::Bool(std::string_view key) {
  const Json* value = Find(
      key, [](const Json& json) { return json.is_boolean(); }, "true or false");
  return value != nullptr && value->get<bool>();
}

const Json* JsonFields::Object(std::string_view key) {
  static const Json kEmpty = Json::object();
  const Json* value = Find(
      key, [](const Json& json) { return json.is_object(); }, "object");
  return value == nullptr ? &kEmpty : value;
}

const Json* JsonFields::Array(std::string_view key) {
  static const Json kEmpty = Json::array();
  const Json* value = Find(
      key, [](const Json& json) { return json.is_array(); }, "array");
  return value == nullptr ? &kEmpty : value;
}

std::vector<uint64_t> JsonFields::Uints(std::string_view key) {
  const Json* array = Array(key);
  if (const auto other = std::ranges::find_if_not(*array, IsUint); other != array->end()) {
    Keep(Malformed(where_, fmt::format("field \"{}\" has the wrong type", key))
             .Found(other->type_name())
             .Expected("integers of 0 or more"));
    return {};
  }
  return array->get<std::vector<uint64_t>>();
}

std::vector<std::string> JsonFields::Texts(std::string_view key) {
  const Json* array = Array(key);
  if (const auto other = std::ranges::find_if_not(*array, IsText); other != array->end()) {
    Keep(Malformed(where_, fmt::format("field \"{}\" has the wrong type", key))
             .Found(other->type_name())
             .Expected("strings"));
    return {};
  }
  return array->get<std::vector<std::string>>();
}

std::map<std::string, std::string> JsonFields::TextMap(std::string_view key) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : Object(key)->items()) {
    // Not by Text, which searches: there may be one for every module.
    if (!value.is_string()) {
      Keep(Malformed(where_, fmt::format("field \"{}\" has the wrong type", name))
               .Found(value.type_name())
               .Expected("string"));
      return texts;
    }
    texts.emplace(name, value.get_ref<const std::string&>());
  }
  return texts;
}

bool JsonFields::Has(std::string_view key) const {
  return object_->is_object() && object_->contains(key);
}

bool JsonFields::IsNull(std::string_view key) const {
  return Has(key) && object_->find(key)->is_null();
}

JsonFields JsonFields::In(const Json& child, std::string_view name) const {
  return {child, fmt::format("{}: {}", where_, name), *status_};
}

JsonFields JsonFields::In(const Json& child, std::string_view key, size_t index) const {
  return {child, fmt::format("{}: {}[{}]", where_, key, index), *status_};
}

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
      .Id("config-field-invalid");
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

Result<std::vector<std::string>> OptionalStrings(const Json& object,
                                                 std::initializer_list<std::string_view> keys,
                                                 std::string_view where,
                                                 std::string_view expected) {
  std::vector<std::string> strings;
  for (const std::string_view key : keys) {
    const Json* list = JsonMember(object, key);
    if (list == nullptr) continue;
    if (!list->is_array() || !std::ranges::all_of(*list, IsText)) {
      return WrongType(*list, key, where, expected);
    }
    for (const Json& entry : *list) strings.push_back(entry.get<std::string>());
  }
  return strings;
}

Status RequireObject(const Json& value, std::string_view where) {
  if (value.is_object()) return {};
  return Malformed(where, "the field has the wrong type")
      .Found(ShowJson(value))
      .Expected("an object")
      .Id("config-field-invalid");
}

Status RefuseUnknownKeys(const Json& object, std::span<const std::string_view> known,
                         std::string_view where) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Unsupported(where, fmt::format("unknown key \"{}\"", Printable(key)))
        .Expected(fmt::format("only {}", fmt::join(known, ", ")))
        .Hint("The key may change what the weights mean, so prepack does not skip it")
        .Id("config-key-unknown");
  }
  return {};
}

Status UnknownKeyword(std::string_view where, std::string_view key, std::string_view value,
                      std::string_view expected) {
  return Unsupported(FieldPath(where, key), "unknown keyword")
      .Found(fmt::format("\"{}\"", Printable(value)))
      .Expected(expected)
      .Id("config-keyword-unknown");
}

}  // namespace prepack
