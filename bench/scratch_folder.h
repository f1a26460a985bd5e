#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace prepack::bench {

// A folder that is gone at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "prepack-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::exit(4);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace prepack::bench
