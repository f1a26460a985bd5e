#ifndef PREPACK_CONTAINER_JSON_STRICT_H_
#define PREPACK_CONTAINER_JSON_STRICT_H_

// JSON that comes from a checkpoint. nlohmann's own DOM keeps the last of two equal keys and has
// no limit on depth; here a duplicate key, too much depth, too many values or trailing text is
// kMalformed, with the byte offset.

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "container/json.h"

namespace prepack {

struct JsonLimits {
  size_t max_depth = 32;          // config.json of real models stays below 10
  size_t max_values = 4'000'000;  // an index of 1M tensors has 1M values
  // Are NaN, Infinity and -Infinity numbers? For JSON they are not, but Python writes and reads
  // them, so the configs of some models have them. Python also takes what is too large for a double
  // for infinity.
  bool python_numbers = false;
};

// `where` names the file, for the error.
Result<Json> ParseJsonStrict(std::string_view text, std::string_view where,
                             const JsonLimits& limits = {});

}  // namespace prepack

#endif  // PREPACK_CONTAINER_JSON_STRICT_H_
