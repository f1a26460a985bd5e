#ifndef PREPACK_IO_MAPPED_WINDOWS_H_
#define PREPACK_IO_MAPPED_WINDOWS_H_

// The parts of files that are mapped at the moment. A checkpoint may be larger than the address
// space that a process is allowed, so files are mapped window by window; the last few windows are
// kept, because visits come panel by panel.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "io/mapping.h"

namespace prepack {

inline constexpr uint64_t kWindowBytes =
    256ULL * 1024 * 1024;                  // at least, where the file is as long
inline constexpr size_t kKeptWindows = 8;  // in the process

class MappedWindows {
 public:
  static MappedWindows& OfProcess();

  // Bytes [offset, offset + bytes) > 0 of a file, which has them, mapped. `file` is a number of its
  // own for every open file. Null with errno in `error` when they cannot be mapped.
  std::shared_ptr<const Mapping> Find(uint64_t file, int fd, uint64_t file_bytes, uint64_t offset,
                                      uint64_t bytes, int& error);
  // Forgets the windows of a file; a visit that is under way keeps its own.
  void Forget(uint64_t file);
  // How many are kept at the moment.
  size_t size() const;

 private:
  struct Window {
    uint64_t file = 0;
    std::shared_ptr<const Mapping> mapping;
  };

  mutable std::mutex mutex_;
  std::vector<Window> windows_;  // the one used last is the last
};

}  // namespace prepack

#endif  // PREPACK_IO_MAPPED_WINDOWS_H_
