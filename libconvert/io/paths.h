#ifndef PREPACK_IO_PATHS_H_
#define PREPACK_IO_PATHS_H_

#include <algorithm>
#include <filesystem>

namespace prepack {

// Is `inner` the folder `outer`, or somewhere below it? Both absolute, and without links, `..` and
// a slash at the end.
inline bool IsInside(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

}  // namespace prepack

#endif  // PREPACK_IO_PATHS_H_
