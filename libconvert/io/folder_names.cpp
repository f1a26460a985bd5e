#include "io/folder_names.h"

#include <algorithm>

#include "io/posix.h"

namespace prepack {

Result<std::vector<std::string>> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  const int result = posix::List(folder, names);
  if (result < 0) return SystemError(folder.string(), "cannot list the folder", -result);
  std::ranges::sort(names);
  return names;
}

}  // namespace prepack
