#pragma once

// A file mapped into memory, to read short runs of it without a system call for each, and without
// a copy.
//
// A file that shrinks while it is mapped makes the kernel send SIGBUS to the thread that touches
// the lost pages. A visit survives that: the first Mapping installs a handler which, for a fault
// inside a visit that is under way, puts a page of zeros in place and remembers that the file is
// broken; the visit is then an error like a short read. Any other SIGBUS goes where it went before.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/function_ref.h"

namespace prepack {

// What is done with bytes while they can be seen. They may change under it when the file is written
// to, and must be treated as untrusted: what was checked may differ when it is read again.
using ByteVisitor = FunctionRef<void(const std::byte* bytes)>;

// Which threads may read the bytes until the work returns. Visits of kAny wait for each other: one
// goes on at a time in the process.
enum class VisitThreads : uint8_t { kThisOne, kAny };

// `runs` runs of `run_bytes` bytes, `stride` apart, the first at `offset`.
struct ByteRuns {
  uint64_t offset = 0;
  uint64_t run_bytes = 0;
  uint64_t stride = 0;
  uint64_t runs = 0;

  // From the first of them to the end of the last one; none: more than a number holds.
  std::optional<uint64_t> Span() const {
    if (runs == 0) return 0;
    const std::optional<uint64_t> skipped = CheckedMul(runs - 1, stride);
    return skipped ? CheckedAdd(*skipped, run_bytes) : std::nullopt;
  }
};

class Mapping {
 public:
  // Maps bytes [offset, offset + bytes) of a file for reading; `offset` is a multiple of the page
  // size, `bytes` > 0. Null with errno in `error` when it cannot be.
  static std::unique_ptr<Mapping> Map(int fd, uint64_t offset, uint64_t bytes, int& error);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Are bytes [offset, offset + bytes) of the file mapped?
  bool Covers(uint64_t offset, uint64_t bytes) const {
    return offset >= offset_ && offset - offset_ <= bytes_ && bytes <= bytes_ - (offset - offset_);
  }

  // Calls `work` with the bytes of the file from `offset` on, which lies inside the mapping; it may
  // read up to the mapping's end. False when the file has lost some of what was read: then nothing
  // that came out of it is to be used. Safe from any thread.
  bool Visit(uint64_t offset, ByteVisitor work,
             VisitThreads threads = VisitThreads::kThisOne) const;

 private:
  bool VisitByThisThread(uint64_t offset, ByteVisitor work) const;

  Mapping(std::byte* begin, uint64_t offset, uint64_t bytes)
      : begin_(begin), offset_(offset), bytes_(bytes) {}

  std::byte* begin_;
  uint64_t offset_;  // of begin_ in the file
  uint64_t bytes_;
  mutable std::atomic<bool> broken_ = false;
};

// The parts of files that are mapped at the moment. A checkpoint may be larger than the address
// space that a process is allowed, so files are mapped window by window; the last few windows are
// kept, because visits come panel by panel.

// What a window has beyond what was asked for, if the file is as long.
inline constexpr uint64_t kWindowBytes = uint64_t{2} << 20;
// The same of columns: those of a tensor that is stored input channel by input channel come stripe
// by stripe, each a little further on, and all touch the same pages. For stripes of 1 MiB and more.
inline constexpr uint64_t kWideWindowBytes = uint64_t{32} << 20;
// In the process, six for each CPU: a thread reads a source and an output, and may be at an edge
// of both. One that goes while it is needed has to be mapped again, page by page.
size_t MostKeptWindows();

class MappedWindows {
 public:
  static MappedWindows& OfProcess();

  // A file that is open: its number, which no other one has, and how long it is.
  struct OpenFile {
    uint64_t number = 0;
    int fd = -1;
    uint64_t bytes = 0;
  };
  // Bytes [offset, offset + bytes) > 0 of a file, which has them, mapped, and up to `ahead` beyond
  // if they were not yet. Null with errno in `error` when they cannot be mapped.
  std::shared_ptr<const Mapping> Find(const OpenFile& file, uint64_t offset, uint64_t bytes,
                                      uint64_t ahead, int& error);
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
