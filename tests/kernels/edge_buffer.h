#pragma once

// Memory for kernels that must stay inside of what they are given: it ends where a page begins that
// nobody may touch, so that a read or write behind it ends the test, and it is poisoned, as are
// some bytes in front of it.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "prepack/base/random.h"

namespace prepack {

class EdgeBuffer {
 public:
  static constexpr uint8_t kPoison = 0xA5;

  explicit EdgeBuffer(size_t bytes)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        size_(bytes),
        before_((bytes + kGuard + page_ - 1) / page_ * page_) {
    mapped_ =
        mmap(nullptr, before_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::runtime_error("mmap");
    std::fill_n(First(), before_, kPoison);
    if (mprotect(First() + before_, page_, PROT_NONE) != 0) throw std::runtime_error("mprotect");
  }
  EdgeBuffer(size_t bytes, SplitMix64& random) : EdgeBuffer(bytes) {
    for (uint8_t& byte : span()) byte = static_cast<uint8_t>(random.Next());
  }
  EdgeBuffer(const EdgeBuffer&) = delete;
  EdgeBuffer& operator=(const EdgeBuffer&) = delete;
  ~EdgeBuffer() { munmap(mapped_, before_ + page_); }

  uint8_t* data() const { return First() + before_ - size_; }
  std::byte* bytes() const { return reinterpret_cast<std::byte*>(data()); }
  std::span<uint8_t> span() const { return {data(), size_}; }

  // Holds just these bytes, and nothing was written in front of them.
  bool Holds(std::span<const uint8_t> expected) const {
    return std::ranges::equal(span(), expected) && std::all_of(First(), data(), IsPoison);
  }

 private:
  static constexpr size_t kGuard = 64;
  static bool IsPoison(uint8_t byte) { return byte == kPoison; }
  uint8_t* First() const { return static_cast<uint8_t*>(mapped_); }

  size_t page_;
  size_t size_;
  size_t before_;  // bytes that may be touched
  void* mapped_ = nullptr;
};

using Sizes = std::vector<size_t>;

// What a poisoned buffer should hold, to be written into.
inline std::vector<uint8_t> Poisoned(size_t bytes) {
  return std::vector<uint8_t>(bytes, EdgeBuffer::kPoison);
}

// The bytes from the first of `rows` runs of `row_bytes` to the last one, `stride` apart.
inline size_t StridedBytes(size_t rows, size_t row_bytes, size_t stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + row_bytes;
}

// Nibble `i` of a row.
inline unsigned NibbleAt(const uint8_t* row, size_t i) {
  return row[i / 2] >> (i % 2 * 4) & 15U;
}

inline void PutNibbleAt(uint8_t* row, size_t i, unsigned nibble) {
  const unsigned shift = i % 2 * 4;
  row[i / 2] = static_cast<uint8_t>((row[i / 2] & 0xF0U >> shift) | nibble << shift);
}

}  // namespace prepack
