#ifndef PREPACK_IO_ATOMIC_FILE_H_
#define PREPACK_IO_ATOMIC_FILE_H_

// A small file that appears whole or not at all: what a user asked to have a report written to.

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace prepack {

// Writes a file and replaces an existing one: through a sibling `.NAME.prepack-partial` and a
// rename. A symbolic link of that name is replaced, not followed.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

}  // namespace prepack

#endif  // PREPACK_IO_ATOMIC_FILE_H_
