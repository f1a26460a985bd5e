#pragma once

// Writes a safetensors file of known shape, from any number of threads, in any order.
//
// The header is written first and padded with spaces so that data starts at a multiple of 4096.
// The format allows no holes between tensors, so every tensor starts at a multiple of 64 only if
// the sizes of those before it are multiples of 64: PlanSafetensors puts these first (in the given
// order) and the small odd ones last, largest power-of-two alignment first, so that each of them
// is at least aligned to its element. The first odd tensor is aligned to 64 too.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/safetensors.h"

namespace prepack {

inline constexpr uint64_t kDataAlignment = 4096;  // a page: consumers map the data
inline constexpr uint64_t kWritebackBytes = 8ULL * 1024 * 1024;
inline constexpr uint64_t kTensorAlignment = 64;  // a cache line and an AVX-512 register

// A tensor to write. `begin` and `end` of the result are set by PlanSafetensors.
struct SafetensorsPlan {
  SafetensorsHeader header;
  uint64_t file_bytes = 0;

  // Calls visit(offset, text) with the 8 length bytes, the JSON and its padding: all that is in
  // front of the data, piece by piece. Stops at the first status that is not OK.
  using HeaderVisitor = FunctionRef<Status(uint64_t offset, std::string_view text)>;
  Status VisitHeader(HeaderVisitor visit) const;
};

// Lays the tensors out. Names must be unique; sizes are checked for overflow.
Result<SafetensorsPlan> PlanSafetensors(std::vector<TensorInfo> tensors,
                                        std::map<std::string, std::string> metadata);

class SafetensorsWriter {
 public:
  // Creates the file, reserves its space and writes the header.
  static Result<SafetensorsWriter> Create(const std::filesystem::path& path, SafetensorsPlan plan);
  // The same where a file of that name may be left over, which goes.
  static Result<SafetensorsWriter> Replace(const std::filesystem::path& path, SafetensorsPlan plan);

  const SafetensorsHeader& header() const { return plan_.header; }
  // Opens a file that Create made in an earlier run, to go on with it; nothing where there is none
  // of that size with that header.
  static Result<std::optional<SafetensorsWriter>> Reopen(const std::filesystem::path& path,
                                                         const SafetensorsPlan& plan);

  // The hash of everything in front of the data.
  const Hash128& header_hash() const { return header_hash_; }
  const File& file() const { return file_; }

  // Writes `bytes` at `offset` inside tensor `index` of header().tensors; the range is checked.
  // Threads may write different ranges at the same time; they get on better in turns.
  Status Write(size_t index, uint64_t offset, std::span<const std::byte> bytes);
  // With true, the default, the kernel is asked every kWritebackBytes to begin flushing, so that
  // the disk is at work from the start.
  void FlushEarly(bool early) { flushes_early_ = early; }
  // For those who write in turns.
  std::mutex& turn() { return *turn_; }
  // Flushes to the disk. That every byte was written is up to the caller.
  Status Sync();
  // Instead, where nobody waits for the disk: see File::CheckArrived.
  Status CheckArrived();

 private:
  SafetensorsWriter(File file, SafetensorsPlan plan, const Hash128& header_hash);

  File file_;
  SafetensorsPlan plan_;
  Hash128 header_hash_;
  std::unique_ptr<std::atomic<uint64_t>> written_;
  std::unique_ptr<std::mutex> turn_;
  bool flushes_early_ = true;
};

}  // namespace prepack
