#include "prepack/io/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"

namespace prepack {
namespace {

// What a thread needs besides the buffers: its stack, and its share of the allocator.
constexpr uint64_t kThreadOverhead = 512ULL * 1024;
// By how much one run of the same work differs from another: what an error asks for has to do.
constexpr uint64_t kVariation = 256ULL * 1024;
constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace

Result<unsigned> ThreadsWithin(const MemoryNeed& need, unsigned jobs, uint64_t memory_limit,
                               std::string_view done) {
  const unsigned wanted = ThreadCount(jobs);
  GiveBackFreed();  // what counts is what is in use
  if (memory_limit == 0) return wanted;
  PREPACK_TRY_ASSIGN(const uint64_t taken, AnonymousMemory());
  const uint64_t before = taken + need.shared;
  const uint64_t per_thread = need.per_thread + kThreadOverhead;
  const uint64_t left = memory_limit > before ? memory_limit - before : 0;
  if (left < per_thread) {
    return Usage("--memory-limit",
                 fmt::format("this model cannot be {} with so little memory", done))
        .Found(fmt::format("{} bytes", memory_limit))
        .Expected(
            fmt::format("at least {}", CeilDiv(before + per_thread + kVariation, kMiB) * kMiB))
        .Hint("The page cache does not count");
  }
  return static_cast<unsigned>(std::min<uint64_t>(wanted, left / per_thread));
}

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
  return SystemError(kPath, "cannot tell how much memory is in use", ENOENT);
}

}  // namespace prepack
