#include "json_fields.h"

#include <set>
#include <utility>

#include "refusal.h"

namespace {

using nlohmann::json;

void Require(bool right, const std::string& where, const std::string& key, const char* found,
             const char* expected) {
  if (right) return;
  throw Malformed(where, "field \"" + key + "\" has the wrong type (found " + found +
                             ", expected " + expected + ")");
}

std::vector<uint64_t> UintsOf(const json& value, const std::string& where, const std::string& key) {
  constexpr const char* kExpected = "array of integers of 0 or more";
  Require(value.is_array(), where, key, value.type_name(), kExpected);
  std::vector<uint64_t> numbers;
  for (const json& number : value) {
    Require(number.is_number_unsigned(), where, key, number.type_name(), kExpected);
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

}  // namespace

json ParseJson(const std::string& text, const std::string& file) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto refuse_equal_keys = [&](int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      throw Malformed(file, "a key is there twice: " + parsed.dump());
    }
    return true;
  };
  try {
    return json::parse(text, refuse_equal_keys);
  } catch (const json::parse_error& error) {
    throw Malformed(file, error.what());
  }
}

Fields::Fields(const json& object, std::string where) : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) throw Malformed(where_, "this is no JSON object");
}

const json& Fields::At(const std::string& key) const {
  const auto field = object_->find(key);
  if (field == object_->end()) throw Malformed(where_, "field \"" + key + "\" is missing");
  return *field;
}

std::string Fields::String(const std::string& key) const {
  const json& value = At(key);
  Require(value.is_string(), where_, key, value.type_name(), "string");
  return value.get<std::string>();
}

bool Fields::Bool(const std::string& key) const {
  const json& value = At(key);
  Require(value.is_boolean(), where_, key, value.type_name(), "boolean");
  return value.get<bool>();
}

uint64_t Fields::Uint(const std::string& key) const {
  const json& value = At(key);
  Require(value.is_number_unsigned(), where_, key, value.type_name(), "integer of 0 or more");
  return value.get<uint64_t>();
}

std::vector<uint64_t> Fields::Uints(const std::string& key) const {
  return UintsOf(At(key), where_, key);
}

std::vector<std::vector<uint64_t>> Fields::UintLists(const std::string& key) const {
  const json& value = At(key);
  Require(value.is_array(), where_, key, value.type_name(), "array of arrays");
  std::vector<std::vector<uint64_t>> lists;
  for (const json& list : value) lists.push_back(UintsOf(list, where_, key));
  return lists;
}

Fields Fields::Object(const std::string& key) const {
  const json& value = At(key);
  Require(value.is_object(), where_, key, value.type_name(), "object");
  return {value, where_ + ": " + key};
}

std::vector<std::string> Fields::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items()) keys.push_back(key);
  return keys;
}
