#ifndef PREPACK_CONTAINER_REQUIRED_FIELDS_H_
#define PREPACK_CONTAINER_REQUIRED_FIELDS_H_

// Reads members of a JSON object that must exist and have a given type. A missing member or another
// type is kMalformed; `where` names the object in the message.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack {

// The pointers live as long as `object`.
Result<const Json*> ObjectField(const Json& object, std::string_view key, std::string_view where);
Result<const Json*> ArrayField(const Json& object, std::string_view key, std::string_view where);
Result<std::string> StringField(const Json& object, std::string_view key, std::string_view where);
Result<uint64_t> UintField(const Json& object, std::string_view key, std::string_view where);
Result<bool> BoolField(const Json& object, std::string_view key, std::string_view where);
Result<std::vector<uint64_t>> UintArrayField(const Json& object, std::string_view key,
                                             std::string_view where);
Result<std::vector<std::string>> StringArrayField(const Json& object, std::string_view key,
                                                  std::string_view where);
// An object whose members all are strings.
Result<std::map<std::string, std::string>> StringMapField(const Json& object, std::string_view key,
                                                          std::string_view where);

}  // namespace prepack

#endif  // PREPACK_CONTAINER_REQUIRED_FIELDS_H_
