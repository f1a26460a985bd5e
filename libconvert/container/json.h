#ifndef PREPACK_CONTAINER_JSON_H_
#define PREPACK_CONTAINER_JSON_H_

// The JSON type of this project, declared only: whoever looks into a value includes
// <nlohmann/json.hpp> as well. Most headers only pass values on, and that header is the costliest
// to compile of all.

#include <nlohmann/json_fwd.hpp>

namespace prepack {

// Object keys keep the order of the file: the order of config groups can carry meaning.
using Json = nlohmann::ordered_json;

}  // namespace prepack

#endif  // PREPACK_CONTAINER_JSON_H_
