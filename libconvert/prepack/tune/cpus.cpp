#include "prepack/tune/cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "prepack/base/memory.h"
#include "prepack/tune/timing.h"

namespace prepack {
namespace {

constexpr uint64_t kNoCore = uint64_t{1} << 63;  // of CPUs of which nothing is known

// The lowest CPU of the same core stands for it.
uint64_t CoreOf(unsigned cpu, const std::filesystem::path& root) {
  std::ifstream file(root / fmt::format("sys/devices/system/cpu/cpu{}/topology/", cpu) /
                     "thread_siblings_list");
  uint64_t first = 0;
  return file >> first ? first : kNoCore + cpu;
}

cpu_set_t SetOf(std::span<const unsigned> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  return set;
}

constexpr size_t kPasses = 9;

// Reads all of it.
uint64_t SumWords(std::span<const std::byte> bytes) {
  constexpr size_t kLanes = 8;
  uint64_t sums[kLanes] = {};
  for (size_t at = 0; at + kLanes * sizeof(uint64_t) <= bytes.size();
       at += kLanes * sizeof(uint64_t)) {
    uint64_t words[kLanes];
    std::memcpy(words, bytes.data() + at, sizeof(words));
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

}  // namespace

std::vector<CpuPlace> AllowedCpus(const std::filesystem::path& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<CpuPlace> places;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return places;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) places.push_back({.cpu = cpu, .core = CoreOf(cpu, root)});
  }
  return places;
}

Result<std::vector<unsigned>> ChooseCpus(std::span<const CpuPlace> allowed, unsigned threads) {
  std::vector<unsigned> first;
  std::vector<unsigned> second;
  std::set<uint64_t> cores;
  for (const CpuPlace& place : allowed) {
    (cores.insert(place.core).second ? first : second).push_back(place.cpu);
  }
  if (threads == 0) return first;
  if (threads > allowed.size()) {
    return Usage("--threads", "there are not so many CPUs that this process may run on")
        .Found(fmt::format("{}", threads))
        .Expected(fmt::format("at most {}", allowed.size()));
  }
  first.insert(first.end(), second.begin(), second.end());
  first.resize(threads);
  return first;
}

Status PinTo(std::span<const unsigned> cpus) {
  const cpu_set_t set = SetOf(cpus);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return {};
  return SystemError("--threads", "cannot choose the CPUs that this process runs on", errno);
}

double MeasureReadBandwidth(std::span<const unsigned> cpus, uint64_t bytes) {
  using std::chrono::steady_clock;
  const uint64_t share = bytes / cpus.size();
  std::vector<double> seconds;
  steady_clock::time_point begin;
  std::atomic<uint64_t> sink = 0;
  bool began = false;
  // Runs on one thread when all have arrived: before each pass, and after it.
  std::barrier turn(static_cast<std::ptrdiff_t>(cpus.size()), [&]() noexcept {
    const steady_clock::time_point now = steady_clock::now();
    if (began) seconds.push_back(std::chrono::duration<double>(now - begin).count());
    began = !began;
    begin = now;
  });
  seconds.reserve(kPasses);
  std::vector<std::thread> threads;
  for (const unsigned cpu : cpus) {
    threads.emplace_back([&, cpu] {
      static_cast<void>(PinTo(std::span(&cpu, 1)));
      PageBuffer own(share, std::byte{1});  // written: every page is there
      for (size_t pass = 0; pass < kPasses; ++pass) {
        turn.arrive_and_wait();
        sink += SumWords(own);
        turn.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Timing timing = Summarize(seconds);
  return static_cast<double>(share * cpus.size()) / timing.seconds;
}

}  // namespace prepack
