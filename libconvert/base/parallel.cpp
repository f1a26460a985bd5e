#include "base/parallel.h"

#include <sched.h>

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
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

}  // namespace prepack
