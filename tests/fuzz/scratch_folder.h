#pragma once

// A folder in memory for what the library wants in files: made once, used by every input.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/fuzz_target.h"

namespace prepack::fuzz {

class ScratchFolder {
 public:
  ScratchFolder() {
    const bool in_memory = access("/dev/shm", W_OK) == 0;
    path_ =
        (in_memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path()) /
        "prepack-fuzz-XXXXXX";
    std::string name = path_.string();
    Demand(mkdtemp(name.data()) != nullptr, "a folder can be made", name);
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }
  // In place of what the file holds.
  void Write(const std::filesystem::path& name, std::string_view text) const {
    std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    Demand(file.good(), "a file can be written", name.string());
  }
  void Remove(const std::filesystem::path& name) const {
    std::error_code ignored;
    std::filesystem::remove_all(path_ / name, ignored);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace prepack::fuzz
