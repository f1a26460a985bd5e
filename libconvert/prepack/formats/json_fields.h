#ifndef PREPACK_FORMATS_JSON_FIELDS_H_
#define PREPACK_FORMATS_JSON_FIELDS_H_

// Typed access to the fields of a quantization config. A field that is absent or null is nullopt;
// one of the wrong type is kMalformed and names the field. `where` is the place of the object,
// e.g. "config.json: quantization_config".

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack {

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

// kMalformed unless `value` is an object.
Status RequireObject(const Json& value, std::string_view where);

// kUnsupported when the object has a key that is not in `known`: its meaning could change what the
// weights mean.
Status RefuseUnknownKeys(const Json& object, std::span<const std::string_view> known,
                         std::string_view where);

// kUnsupported for a keyword that is none of those that are known.
Status UnknownKeyword(std::string_view where, std::string_view key, std::string_view value,
                      std::string_view expected);

// ASCII lower case; all keywords of quantization configs are ASCII.
std::string LowerCase(std::string_view text);

}  // namespace prepack

#endif  // PREPACK_FORMATS_JSON_FIELDS_H_
