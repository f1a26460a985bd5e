#ifndef PREPACK_BASE_PROGRESS_H_
#define PREPACK_BASE_PROGRESS_H_

#include <atomic>
#include <cstdint>

namespace prepack {

// How far a long run is. Worker threads add, one thread that shows it reads; nothing blocks.
class Progress {
 public:
  // `stage` must be a string literal: what is going on, for people.
  void Begin(const char* stage, uint64_t total_bytes) {
    stage_ = stage;
    total_ = total_bytes;
    done_ = 0;
  }
  void Add(uint64_t bytes) { done_.fetch_add(bytes, std::memory_order_relaxed); }

  const char* stage() const { return stage_; }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  uint64_t total() const { return total_; }

 private:
  std::atomic<const char*> stage_ = "";
  std::atomic<uint64_t> total_ = 0;
  std::atomic<uint64_t> done_ = 0;
};

}  // namespace prepack

#endif  // PREPACK_BASE_PROGRESS_H_
