#ifndef PREPACK_IO_FOLDER_NAMES_H_
#define PREPACK_IO_FOLDER_NAMES_H_

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace prepack {

// The names of all that is in a folder, hidden files as well, ascending.
Result<std::vector<std::string>> NamesIn(const std::filesystem::path& folder);

}  // namespace prepack

#endif  // PREPACK_IO_FOLDER_NAMES_H_
