// The two errors of every required field, missing or of the wrong type, in the same words
// everywhere.

#include "prepack/container/required_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "prepack/base/status.h"

namespace prepack {
namespace {

Status WrongType(const Json& value, std::string_view key, std::string_view where,
                 std::string_view expected) {
  return Malformed(where, fmt::format("field \"{}\" has the wrong type", key))
      .Found(value.type_name())
      .Expected(expected);
}

Result<const Json*> Field(const Json& object, std::string_view key, std::string_view where) {
  if (!object.is_object()) {
    return Malformed(where, "not an object").Found(object.type_name()).Expected("object");
  }
  const auto it = object.find(key);
  if (it == object.end()) return Malformed(where, fmt::format("field \"{}\" is missing", key));
  return &*it;
}

}  // namespace

Result<const Json*> ObjectField(const Json& object, std::string_view key, std::string_view where) {
  Result<const Json*> field = Field(object, key, where);
  if (field.ok() && !(*field)->is_object()) return WrongType(**field, key, where, "object");
  return field;
}

Result<const Json*> ArrayField(const Json& object, std::string_view key, std::string_view where) {
  Result<const Json*> field = Field(object, key, where);
  if (field.ok() && !(*field)->is_array()) return WrongType(**field, key, where, "array");
  return field;
}

Result<std::string> StringField(const Json& object, std::string_view key, std::string_view where) {
  PREPACK_TRY_ASSIGN(const Json* field, Field(object, key, where));
  if (!field->is_string()) return WrongType(*field, key, where, "string");
  return field->get<std::string>();
}

Result<uint64_t> UintField(const Json& object, std::string_view key, std::string_view where) {
  PREPACK_TRY_ASSIGN(const Json* field, Field(object, key, where));
  if (!field->is_number_unsigned()) {
    return WrongType(*field, key, where, "an integer of 0 or more");
  }
  return field->get<uint64_t>();
}

Result<bool> BoolField(const Json& object, std::string_view key, std::string_view where) {
  PREPACK_TRY_ASSIGN(const Json* field, Field(object, key, where));
  if (!field->is_boolean()) return WrongType(*field, key, where, "true or false");
  return field->get<bool>();
}

Result<std::vector<uint64_t>> UintArrayField(const Json& object, std::string_view key,
                                             std::string_view where) {
  PREPACK_TRY_ASSIGN(const Json* field, ArrayField(object, key, where));
  std::vector<uint64_t> values;
  for (const Json& value : *field) {
    if (!value.is_number_unsigned()) {
      return WrongType(value, key, where, "integers of 0 or more");
    }
    values.push_back(value.get<uint64_t>());
  }
  return values;
}

Result<std::vector<std::string>> StringArrayField(const Json& object, std::string_view key,
                                                  std::string_view where) {
  PREPACK_TRY_ASSIGN(const Json* field, ArrayField(object, key, where));
  std::vector<std::string> values;
  for (const Json& value : *field) {
    if (!value.is_string()) return WrongType(value, key, where, "strings");
    values.push_back(value.get<std::string>());
  }
  return values;
}

Result<std::map<std::string, std::string>> StringMapField(const Json& object, std::string_view key,
                                                          std::string_view where) {
  PREPACK_TRY_ASSIGN(const Json* field, ObjectField(object, key, where));
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : field->items()) {
    // Not by StringField, which searches: there may be one for every module.
    if (!value.is_string()) return WrongType(value, name, where, "string");
    values.emplace(name, value.get<std::string>());
  }
  return values;
}

}  // namespace prepack
