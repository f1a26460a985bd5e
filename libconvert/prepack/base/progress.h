#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace prepack {

// Asks running work to stop at the next panel, clean up and return kInterrupted. Safe to call from
// a signal handler; there is one flag for the process.
void RequestCancellation() noexcept;
bool CancellationRequested() noexcept;
// For tests: takes the request back, and what every look at it calls first (none: null).
void ResetCancellation() noexcept;
void SetCancellationHook(void (*hook)()) noexcept;

// While one lives there is something on the disk to clean up, so that a request to stop has to be
// waited for. Without one the process may end at once.
class OrderlyEnd {
 public:
  OrderlyEnd() noexcept;
  ~OrderlyEnd();
  OrderlyEnd(const OrderlyEnd&) = delete;
  OrderlyEnd& operator=(const OrderlyEnd&) = delete;

  // Does one live? Safe to call from a signal handler.
  static bool IsNeeded() noexcept;
};

// Hears of what a long run does, from any of its threads: must not take long.
class ProgressObserver {
 public:
  ProgressObserver() = default;
  ProgressObserver(const ProgressObserver&) = delete;
  ProgressObserver& operator=(const ProgressObserver&) = delete;
  virtual ~ProgressObserver() = default;

  // `stage` is a string literal. How far the one before it has come can still be read.
  virtual void StageBegins(const char* stage) = 0;
  // The stage that began last goes on to this module, tensor or file. Large ones may be named
  // several times.
  virtual void ItemBegins(std::string_view item) = 0;
};

// How far a long run is. Worker threads add, one thread that shows it reads; nothing blocks.
class Progress {
 public:
  // The observer, which may be null, must live longer.
  explicit Progress(ProgressObserver* observer = nullptr) : observer_(observer) {}

  // `stage` must be a string literal: what is going on, for people.
  void Begin(const char* stage, uint64_t total_bytes) {
    if (observer_ != nullptr) observer_->StageBegins(stage);
    stage_ = stage;
    total_ = total_bytes;
    done_ = 0;
  }
  void BeginItem(std::string_view item) {
    if (observer_ != nullptr) observer_->ItemBegins(item);
  }
  void Add(uint64_t bytes) { done_.fetch_add(bytes, std::memory_order_relaxed); }

  const char* stage() const { return stage_; }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  uint64_t total() const { return total_; }

 private:
  ProgressObserver* observer_;
  std::atomic<const char*> stage_ = "";
  std::atomic<uint64_t> total_ = 0;
  std::atomic<uint64_t> done_ = 0;
};

}  // namespace prepack
