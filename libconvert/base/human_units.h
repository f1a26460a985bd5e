#ifndef PREPACK_BASE_HUMAN_UNITS_H_
#define PREPACK_BASE_HUMAN_UNITS_H_

// Large numbers as people read them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace prepack {

// "512 B", "1.5 MB", "4.0 GB": decimal units, as disks and `ls --si` have them.
std::string HumanBytes(uint64_t bytes);
// "999", "1.5 k", "8.0 G".
std::string HumanCount(uint64_t count);
// "1 module", "2 modules".
std::string Plural(size_t count, std::string_view what);

}  // namespace prepack

#endif  // PREPACK_BASE_HUMAN_UNITS_H_
