#include "base/parallel_units.h"

#include <atomic>
#include <limits>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "base/parallel.h"

namespace prepack {
namespace {

constexpr size_t kNoUnit = std::numeric_limits<size_t>::max();

// How far a unit has come.
struct UnitProgress {
  std::atomic<uint64_t> tasks = 0;  // 0 until it has begun
  std::atomic<uint64_t> next = 0;   // may run past `tasks`
  std::atomic<uint64_t> unfinished = 0;
};

class UnitLanes {
 public:
  UnitLanes(size_t units, UnitWork& work) : progress_(units), work_(work) {}

  // What one thread does.
  void Run(unsigned worker);
  Status Result() { return std::move(failure_); }

 private:
  void Begin(size_t unit);
  void DoTasks(size_t unit, bool own, unsigned worker);
  void Note(size_t unit, uint64_t task, Status status);

  std::vector<UnitProgress> progress_;
  UnitWork& work_;
  std::mutex begin_mutex_;
  size_t next_unit_ = 0;

  std::atomic<size_t> failed_unit_ = kNoUnit;
  std::mutex failure_mutex_;
  uint64_t failed_task_ = 0;
  Status failure_;
};

void UnitLanes::Run(unsigned worker) {
  while (true) {
    size_t unit = 0;
    {
      const std::lock_guard lock(begin_mutex_);
      if (next_unit_ == progress_.size() || failed_unit_.load() != kNoUnit) break;
      unit = next_unit_++;
      Begin(unit);
    }
    DoTasks(unit, /*own=*/true, worker);
  }
  // Every unit has begun: one that has no task left will not get another.
  for (size_t unit = 0; unit < progress_.size(); ++unit) DoTasks(unit, /*own=*/false, worker);
}

void UnitLanes::Begin(size_t unit) {
  uint64_t tasks = 0;
  Status status = CatchExceptions([&] {
    tasks = work_.Begin(unit);
    return Status();
  });
  if (!status.ok()) return Note(unit, 0, std::move(status));
  progress_[unit].unfinished = tasks;
  progress_[unit].tasks = tasks;
}

void UnitLanes::DoTasks(size_t unit, bool own, unsigned worker) {
  UnitProgress& progress = progress_[unit];
  const uint64_t tasks = progress.tasks;
  uint64_t last = 0;
  uint64_t done = 0;
  while (progress.next < tasks && failed_unit_ > unit) {
    const uint64_t task = progress.next.fetch_add(1);
    if (task >= tasks) break;
    last = task;
    Status status = CatchExceptions([&] { return work_.Do(unit, task, own, worker); });
    if (!status.ok()) return Note(unit, task, std::move(status));
    ++done;
  }
  if (done == 0) return;
  Status status = CatchExceptions([&] {
    Status flushed = work_.Flush(unit, worker);
    if (!flushed.ok() || progress.unfinished.fetch_sub(done) != done) return flushed;
    return work_.End(unit);
  });
  if (!status.ok()) Note(unit, last, std::move(status));
}

void UnitLanes::Note(size_t unit, uint64_t task, Status status) {
  const std::lock_guard lock(failure_mutex_);
  const size_t failed = failed_unit_;
  if (std::tie(failed, failed_task_) < std::tie(unit, task)) return;
  failed_unit_ = unit;
  failed_task_ = task;
  failure_ = std::move(status);
}

}  // namespace

Status ForUnits(size_t units, unsigned threads, UnitWork& work) {
  UnitLanes lanes(units, work);
  Status status = ParallelFor(threads, threads, [&](size_t /*lane*/, unsigned worker) {
    lanes.Run(worker);
    return Status();
  });
  return status.ok() ? lanes.Result() : status;
}

}  // namespace prepack
