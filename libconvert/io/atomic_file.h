#ifndef PREPACK_IO_ATOMIC_FILE_H_
#define PREPACK_IO_ATOMIC_FILE_H_

// A small file that appears whole or not at all: what a user asked to have a report written to.

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace prepack {

// Writes a file and replaces an existing one: through a sibling `.NAME.prepack-partial` and a
// rename. A symbolic link is followed. What exists and is no regular file (/dev/stdout, a FIFO) is
// written to and never replaced.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

}  // namespace prepack

#endif  // PREPACK_IO_ATOMIC_FILE_H_
