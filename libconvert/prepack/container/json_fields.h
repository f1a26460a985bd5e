#pragma once

// Typed access to the members of a JSON object. JsonFields reads documents of our own, in which a
// member is there and has its type; the functions below it read configs that others write.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack {

// The members of one object. A member that is missing or has another type is kMalformed. The first
// error stays in `status`, and what is read after it means nothing: callers read all members, and
// look at the status once, at the end.
class JsonFields {
 public:
  // Refers to `object` and `status`, which must live longer. `where` names the object in errors.
  JsonFields(const Json& object, std::string where, Status& status)
      : object_(&object), where_(std::move(where)), status_(&status) {}

  bool ok() const { return status_->ok(); }
  const std::string& where() const { return where_; }

  std::string Text(std::string_view key);
  uint64_t Uint(std::string_view key);
  // kMalformed unless it is in [low, high].
  uint64_t Uint(std::string_view key, uint64_t low, uint64_t high);
  bool Bool(std::string_view key);
  std::vector<uint64_t> Uints(std::string_view key);
  std::vector<std::string> Texts(std::string_view key);
  // An object whose members all are strings.
  std::map<std::string, std::string> TextMap(std::string_view key);
  // Never null: what is not there is an empty object, or an empty list.
  const Json* Object(std::string_view key);
  const Json* Array(std::string_view key);
  // The member, of any type; null (and kMalformed) when it is missing.
  const Json* Any(std::string_view key);

  // Is it there? A member that is null is.
  bool Has(std::string_view key) const;
  // Is the member there, and null? One that is not there is an error of whoever reads it.
  bool IsNull(std::string_view key) const;
  std::string TextOrNull(std::string_view key) { return IsNull(key) ? "" : Text(key); }
  std::optional<bool> BoolOrNull(std::string_view key) {
    return IsNull(key) ? std::nullopt : std::optional(Bool(key));
  }
  const Json* ObjectOrNull(std::string_view key) { return IsNull(key) ? nullptr : Object(key); }

  // The members of an object that lies in this one; `name` is added to `where`.
  JsonFields In(const Json& child, std::string_view name) const;
  // The member `key`, which is an object; and the next one, which is an element of the list `key`.
  JsonFields In(std::string_view key) { return In(*Object(key), key); }
  JsonFields In(const Json& child, std::string_view key, size_t index) const;
  // The members of `child` in errors that name this object only.
  JsonFields Same(const Json& child) const { return {child, where_, *status_}; }

  // Keeps an error, if it is the first one.
  void Keep(Status status) {
    if (status_->ok()) *status_ = std::move(status);
  }
  // The value, or a default one and the error.
  template <typename T>
  T Take(Result<T> value) {
    if (value.ok()) return *std::move(value);
    Keep(value.status());
    return T{};
  }

 private:
  // The member if `fits` holds for it, else null and an error that says what was expected.
  const Json* Find(std::string_view key, bool (*fits)(const Json&), std::string_view expected);

  const Json* object_;
  std::string where_;
  Status* status_;
};

// Configs that others write. A field that is absent or null is nullopt; one of the wrong type is
// kMalformed and names the field. `where` is the place of the object, e.g. "config.json:
// quantization_config".

// "where.key", for errors about a member.
std::string FieldPath(std::string_view where, std::string_view key);

// Equal as JSON is: the order of an object's members says nothing.
bool SameJson(const Json& a, const Json& b);

// One line of the value as JSON, cut to a length that fits into an error.
std::string ShowJson(const Json& value);

Result<std::optional<bool>> OptionalBool(const Json& object, std::string_view key,
                                         std::string_view where);
Result<std::optional<int64_t>> OptionalInt(const Json& object, std::string_view key,
                                           std::string_view where);
Result<std::optional<std::string>> OptionalString(const Json& object, std::string_view key,
                                                  std::string_view where);
// The strings of the lists `keys`, one list after the other.
Result<std::vector<std::string>> OptionalStrings(const Json& object,
                                                 std::initializer_list<std::string_view> keys,
                                                 std::string_view where,
                                                 std::string_view expected = "a list of strings");

// kMalformed unless `value` is an object.
Status RequireObject(const Json& value, std::string_view where);

// kUnsupported when the object has a key that is not in `known`: its meaning could change what the
// weights mean.
Status RefuseUnknownKeys(const Json& object, std::span<const std::string_view> known,
                         std::string_view where);

// kUnsupported for a keyword that is none of those that are known.
Status UnknownKeyword(std::string_view where, std::string_view key, std::string_view value,
                      std::string_view expected);

}  // namespace prepack
