#include "prepack/base/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// Notes what is called, and does what it is told to.
class NotedWork final : public UnitWork {
 public:
  explicit NotedWork(std::vector<uint64_t> tasks) : tasks_(std::move(tasks)) {}

  uint64_t Begin(size_t unit) override {
    const std::lock_guard lock(mutex);
    begun.push_back(unit);
    if (on_begin) on_begin(unit);
    return tasks_[unit];
  }
  Status Do(size_t unit, uint64_t task, bool own, unsigned worker) override {
    {
      const std::lock_guard lock(mutex);
      done[unit].push_back(task);
      if (own) owned[unit].push_back(task);
      unflushed[worker][unit] += 1;
      most_workers = std::max(most_workers, worker + 1);
    }
    return on_task ? on_task(unit, task, own) : Status();
  }
  Status Flush(size_t unit, unsigned worker) override {
    const std::lock_guard lock(mutex);
    flushed[unit] += std::exchange(unflushed[worker][unit], 0);
    return on_flush ? on_flush(unit) : Status();
  }
  Status End(size_t unit) override {
    const std::lock_guard lock(mutex);
    ended.push_back(unit);
    if (flushed[unit] != tasks_[unit]) throw std::runtime_error("ended too early");
    return on_end ? on_end(unit) : Status();
  }

  std::mutex mutex;
  std::vector<size_t> begun;
  std::vector<size_t> ended;
  std::map<size_t, std::vector<uint64_t>> done;
  std::map<size_t, std::vector<uint64_t>> owned;
  std::map<unsigned, std::map<size_t, uint64_t>> unflushed;
  std::map<size_t, uint64_t> flushed;
  unsigned most_workers = 0;
  std::function<void(size_t)> on_begin;
  std::function<Status(size_t, uint64_t, bool)> on_task;
  std::function<Status(size_t)> on_flush;
  std::function<Status(size_t)> on_end;

 private:
  const std::vector<uint64_t> tasks_;
};

Status FailAt(size_t unit, uint64_t task) {
  return Malformed("unit " + std::to_string(unit) + " task " + std::to_string(task), "failed");
}

TEST_CASE("every task of every unit is done once, flushed, and then its unit ends") {
  const unsigned threads = GENERATE(1U, 2U, 3U, 8U);
  CAPTURE(threads);
  const std::vector<uint64_t> tasks = {5, 0, 1, 300, 7, 0, 64};
  NotedWork work(tasks);
  RequireOk(ForUnits(tasks.size(), threads, work));
  CHECK(work.begun == std::vector<size_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(work.most_workers <= threads);
  std::ranges::sort(work.ended);
  CHECK(work.ended == std::vector<size_t>{0, 2, 3, 4, 6});
  for (size_t unit = 0; unit < tasks.size(); ++unit) {
    CAPTURE(unit);
    CHECK(std::ranges::is_sorted(work.owned[unit]));
    std::vector<uint64_t> done = work.done[unit];
    std::ranges::sort(done);
    REQUIRE(done.size() == tasks[unit]);
    for (uint64_t task = 0; task < tasks[unit]; ++task) CHECK(done[task] == task);
  }
}

TEST_CASE("no units are no work") {
  NotedWork work({});
  RequireOk(ForUnits(0, 4, work));
  CHECK(work.begun.empty());
}

TEST_CASE("one thread does one unit after the other, all of them its own") {
  NotedWork work({2, 3});
  std::vector<std::pair<size_t, uint64_t>> order;
  work.on_task = [&](size_t unit, uint64_t task, bool own) {
    CHECK(own);
    order.emplace_back(unit, task);
    return Status();
  };
  RequireOk(ForUnits(2, 1, work));
  CHECK(order == std::vector<std::pair<size_t, uint64_t>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}});
  CHECK(work.ended == std::vector<size_t>{0, 1});
}

TEST_CASE("a thread without a unit helps with that of another") {
  // The first task ends only when the second has been done, which another thread must do. Which of
  // the two is the helper's is chance.
  NotedWork work({2});
  std::atomic<bool> helped = false;
  std::array<bool, 2> is_own{};
  work.on_task = [&](size_t, uint64_t task, bool own) {
    is_own.at(task) = own;
    if (task == 0) {
      helped.wait(false);
    } else {
      helped = true;
      helped.notify_all();
    }
    return Status();
  };
  RequireOk(ForUnits(1, 2, work));
  CHECK(is_own[0] != is_own[1]);
  CHECK(work.ended == std::vector<size_t>{0});
}

TEST_CASE("one thread stops at the first failure of units") {
  NotedWork work({2, 4, 2});
  work.on_task = [](size_t unit, uint64_t task, bool) {
    return unit == 1 && task >= 1 ? FailAt(unit, task) : Status();
  };
  CheckError(ForUnits(3, 1, work), ErrorKind::kMalformed, "unit 1 task 1: failed");
  CHECK(work.begun == std::vector<size_t>{0, 1});
  CHECK(work.done[1] == std::vector<uint64_t>{0, 1});
  CHECK(work.ended == std::vector<size_t>{0});
}

TEST_CASE("of several failures of units the first by unit and task is returned") {
  // Unit 0 fails at its last task, and only after unit 1 has failed.
  NotedWork work({3, 2});
  std::atomic<bool> second_failing = false;
  work.on_task = [&](size_t unit, uint64_t task, bool) {
    if (unit == 1) {
      second_failing = true;
      second_failing.notify_all();
      return FailAt(unit, task);
    }
    second_failing.wait(false);
    return task == 2 ? FailAt(unit, task) : Status();
  };
  CheckError(ForUnits(2, 2, work), ErrorKind::kMalformed, "unit 0 task 2: failed");
  CHECK(work.ended.empty());
}

TEST_CASE("with every task of units failing the report does not depend on timing") {
  for (int round = 0; round < 100; ++round) {
    NotedWork work(std::vector<uint64_t>(20, 5));
    work.on_task = [](size_t unit, uint64_t task, bool) { return FailAt(unit, task); };
    REQUIRE(ForUnits(20, 8, work).ToString() == "unit 0 task 0: failed");
  }
}

TEST_CASE("what fails besides tasks of units fails them") {
  const unsigned threads = GENERATE(1U, 3U);
  NotedWork work({2, 2});
  SECTION("flushing") {
    work.on_flush = [](size_t unit) { return FailAt(unit, 7); };
    CheckError(ForUnits(2, threads, work), ErrorKind::kMalformed, "unit 0 task 7: failed");
    CHECK(work.ended.empty());
  }
  SECTION("ending") {
    work.on_end = [](size_t unit) { return unit == 1 ? FailAt(unit, 8) : Status(); };
    CheckError(ForUnits(2, threads, work), ErrorKind::kMalformed, "unit 1 task 8: failed");
  }
  SECTION("an exception when a unit begins") {
    work.on_begin = [](size_t unit) {
      if (unit == 1) throw std::runtime_error("a library threw");
    };
    CheckError(ForUnits(2, threads, work), ErrorKind::kSystem, "a library threw");
  }
  SECTION("an exception in a task") {
    work.on_task = [](size_t, uint64_t task, bool) -> Status {
      if (task == 1) throw std::bad_alloc();
      return {};
    };
    CheckError(ForUnits(2, threads, work), ErrorKind::kSystem, "out of memory");
  }
}

}  // namespace
}  // namespace prepack::testing
