#include "io/process_memory.h"

#include <cerrno>
#include <fstream>
#include <string>

namespace prepack {

Result<uint64_t> AnonymousMemory() {
  constexpr const char* kPath = "/proc/self/status";
  constexpr uint64_t kBytesPerUnit = 1024;
  // Not through File: what lies in /proc has no size.
  std::ifstream status(kPath);
  std::string field;
  uint64_t value = 0;
  while (status >> field) {
    if (field == "RssAnon:" && status >> value) return value * kBytesPerUnit;
  }
  return SystemError(kPath, "cannot find out how much memory is in use", ENOENT);
}

}  // namespace prepack
