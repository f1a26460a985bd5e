#include "prepack/base/parallel.h"

#include <sched.h>

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace prepack {

unsigned ThreadCount(unsigned jobs) {
  if (jobs != 0) return jobs;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int cpus = CPU_COUNT(&set);
    if (cpus > 0) return static_cast<unsigned>(cpus);
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

namespace {

Status OutOfMemory() {
  return Status(ErrorKind::kSystem, "", "out of memory").Hint("Use fewer threads with --jobs");
}

}  // namespace

Status CatchExceptions(FunctionRef<Status()> work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& error) {
    return {ErrorKind::kSystem, "", error.what()};
  }
}

Status ParallelFor(size_t count, unsigned threads, FunctionRef<Status(size_t, unsigned)> task) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  Status first_error;
  size_t first_error_index = std::numeric_limits<size_t>::max();
  std::atomic<bool> failed = false;
  // For when there is not even memory to say so.
  Status out_of_memory = OutOfMemory();
  const auto fail = [&](size_t index, Status& status) {
    const std::lock_guard lock(mutex);
    failed = true;
    if (status.ok() || index >= first_error_index) return;  // ok: out_of_memory was used before
    first_error_index = index;
    first_error = std::exchange(status, Status());
  };
  const auto run = [&](size_t index, unsigned worker) {
    try {
      Status status = CatchExceptions([&] { return task(index, worker); });
      if (!status.ok()) fail(index, status);
    } catch (const std::bad_alloc&) {
      fail(index, out_of_memory);
    }
  };

  const auto work = [&](unsigned worker) {
    while (!failed.load(std::memory_order_relaxed)) {
      const size_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      run(index, worker);
    }
  };

  const size_t useful = std::min<size_t>(threads, count);
  std::vector<std::jthread> helpers;
  for (unsigned worker = 1; worker < useful; ++worker) {
    try {
      helpers.emplace_back(work, worker);
    } catch (const std::system_error&) {
      break;  // fewer threads do the same work
    }
  }
  if (count > 0) work(0);
  helpers.clear();
  return first_error;
}

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
