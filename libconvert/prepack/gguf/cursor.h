#pragma once

// Walks a file from front to back through a window, so that a header of any length takes little
// memory and few system calls.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/io/file.h"

namespace prepack::gguf {

class Cursor {
 public:
  // `file` must outlive it. Begins at `offset`, which is inside the file or at its end.
  explicit Cursor(const File& file, uint64_t offset = 0) : file_(file), offset_(offset) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return file_.size() - offset_; }

  // A little-endian number of 1 to 8 bytes. `where` names it if the file ends in it.
  Result<uint64_t> Uint(std::string_view where, uint32_t bytes);
  // The 8 bytes in front of a text, compared with what is left of the file.
  Result<uint64_t> Length(std::string_view where);
  // To be called with lengths that were compared with a limit: the text is copied.
  Result<std::string> Text(std::string_view where, uint64_t bytes);
  Status Skip(std::string_view where, uint64_t bytes);

 private:
  Status Need(std::string_view where, uint64_t bytes) const;
  // The next bytes, which lie in the window then; `bytes` are few, and there.
  Result<std::span<const std::byte>> Window(uint64_t bytes);

  const File& file_;
  uint64_t offset_;
  std::vector<std::byte> window_;
  uint64_t window_start_ = 0;
};

}  // namespace prepack::gguf
