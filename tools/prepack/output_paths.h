#ifndef PREPACK_TOOLS_OUTPUT_PATHS_H_
#define PREPACK_TOOLS_OUTPUT_PATHS_H_

// Are the files that a user wants written where they may be written? Asked before any work is done.

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace prepack::cli {

class OutputPaths {
 public:
  // Nothing may be written into this folder, or any below it; `name` is for the message.
  void ProtectFolder(const std::filesystem::path& folder, std::string_view name);
  // This file may not be replaced.
  void ProtectFile(const std::filesystem::path& file, std::string_view name);
  // Adds the file that `option` names: kUsage when it is protected, a folder, or another option's
  // file as well; kSystem when its folder does not exist.
  Status Add(std::string_view option, const std::filesystem::path& file);

 private:
  struct Named {
    std::filesystem::path path;  // without links in its folder
    std::string name;
  };
  std::vector<Named> folders_;
  std::vector<Named> files_;
};

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_OUTPUT_PATHS_H_
