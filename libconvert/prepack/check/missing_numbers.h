#ifndef PREPACK_CHECK_MISSING_NUMBERS_H_
#define PREPACK_CHECK_MISSING_NUMBERS_H_

// Counts of config.json against the numbers in names.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/json.h"

namespace prepack {

// A field that is a count; nullopt when it is absent or something else.
std::optional<uint64_t> CountOf(const Json& config, std::string_view key);

// Numbers below a count that are not there: how many, and the first of them.
struct MissingNumbers {
  uint64_t count = 0;
  std::vector<uint64_t> first;
};

// `count` comes from a file and may be anything: it is never counted up to.
MissingNumbers MissingBelow(uint64_t count, const std::set<uint64_t>& present);

// "3, 4, …"
std::string ShowMissing(const MissingNumbers& missing);

}  // namespace prepack

#endif  // PREPACK_CHECK_MISSING_NUMBERS_H_
