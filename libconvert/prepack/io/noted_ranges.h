#pragma once

// Which bytes of files are read while a model is opened and planned. Beside headers these are few:
// the shape that a tensor states, the first zero points of a module, a scale of activations.
//
//   kMissing  what is wanted of files of which only headers are here (io/file.h), for those who can
//             fetch it: `prepack-remote` runs a command once for that and throws its answer away.
//             Readers are given zeros, so that they go on and want the rest
//   kRead     what is read of whole files, so that the headers that `convert --consume` leaves of
//             them have it

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

namespace prepack {

// Offset → bytes; may touch and overlap.
using ByteRanges = std::map<uint64_t, uint64_t>;

class NotedRanges {
 public:
  enum class Mode : uint8_t { kNothing, kMissing, kRead };

  static NotedRanges& OfProcess();

  void SetMode(Mode mode) { mode_ = mode; }
  Mode mode() const { return mode_.load(std::memory_order_relaxed); }
  // Is the range noted? Not if it is long, or if too much is noted in all: then it is not for those
  // few bytes. From any thread.
  bool Note(const std::filesystem::path& file, uint64_t offset, uint64_t bytes);
  bool empty() const;
  // Is anything noted of these bytes? Of what is missing, zeros were read then.
  bool Has(const std::filesystem::path& file, uint64_t offset, uint64_t bytes) const;
  // All of it; nothing is noted any more.
  std::map<std::filesystem::path, ByteRanges> Take();
  ByteRanges Of(const std::filesystem::path& file) const;
  // {"ranges": {"/path/of/NAME": [[offset, bytes], …]}}
  std::string Json() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<Mode> mode_ = Mode::kNothing;
  uint64_t total_ = 0;
  std::map<std::filesystem::path, ByteRanges> ranges_;
};

}  // namespace prepack
