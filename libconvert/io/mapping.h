#ifndef PREPACK_IO_MAPPING_H_
#define PREPACK_IO_MAPPING_H_

// A file mapped into memory, to copy short runs out of it without a system call for each.
//
// A file that shrinks while it is mapped makes the kernel send SIGBUS to whoever touches the lost
// pages. Copying here survives that: the first Mapping installs a handler which, for a fault inside
// a copy that is under way, puts a page of zeros in place and remembers that the file is broken;
// the copy is then an error like a short read. Any other SIGBUS goes where it went before.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace prepack {

// `runs` runs of `run_bytes` bytes, `stride` apart, the first at `offset`.
struct ByteRuns {
  uint64_t offset = 0;
  uint64_t run_bytes = 0;
  uint64_t stride = 0;
  uint64_t runs = 0;
};

class Mapping {
 public:
  // Maps the first `bytes` > 0 bytes of a file for reading; null with errno in `error` when it
  // cannot be.
  static std::unique_ptr<Mapping> Map(int fd, uint64_t bytes, int& error);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Copies the runs, which lie inside the mapping, back to back into `out`. False when the file has
  // lost some of them; `out` is then not to be used. Safe from any thread.
  bool Copy(const ByteRuns& runs, std::span<std::byte> out) const;

 private:
  Mapping(std::byte* begin, uint64_t bytes) : begin_(begin), bytes_(bytes) {}

  std::byte* begin_;
  uint64_t bytes_;
  mutable std::atomic<bool> broken_ = false;
};

}  // namespace prepack

#endif  // PREPACK_IO_MAPPING_H_
