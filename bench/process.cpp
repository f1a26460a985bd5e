#include "process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "prepack/base/progress.h"

namespace prepack::bench {
namespace {

constexpr int kPollMilliseconds = 4;
constexpr double kKibibytes = 1024;  // in a MiB

enum class Errors { kShown, kHidden };

pid_t Spawn(const std::vector<std::string>& command, Errors errors) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (errors == Errors::kHidden) {
    posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = 0;
  if (posix_spawnp(&child, arguments[0], &quiet, nullptr, arguments.data(), environ) != 0) {
    Fail(fmt::format("cannot run {}", command[0]));
  }
  posix_spawn_file_actions_destroy(&quiet);
  return child;
}

// In MiB; zero when the process has ended.
double AnonymousMemory(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  std::string word;
  while (status >> word) {
    double kibibytes = 0;
    if (word == "RssAnon:" && status >> kibibytes) return kibibytes / kKibibytes;
  }
  return 0;
}

// Until the process ends; there is no delay when it does. The most that it had.
double WatchMemory(pid_t process) {
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) Fail("this kernel has no pidfd_open (Linux 5.3)");
  pollfd end = {.fd = descriptor, .events = POLLIN, .revents = 0};
  double most = 0;
  // A signal is for the process as well, which then ends.
  while (poll(&end, 1, kPollMilliseconds) <= 0) most = std::max(most, AnonymousMemory(process));
  close(descriptor);
  return most;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double MedianOf(const std::vector<Cost>& costs, double Cost::*field) {
  std::vector<double> values;
  values.reserve(costs.size());
  for (const Cost& cost : costs) values.push_back(cost.*field);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int RunBenchmark(const std::function<void()>& benchmark) {
  // The programs that are run start without the handler, and end at once.
  struct sigaction action = {};
  action.sa_handler = [](int) { RequestCancellation(); };
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaction(signal, &action, nullptr);
  try {
    benchmark();
  } catch (const std::exception& error) {  // ours, and those of std::filesystem
    const bool interrupted = CancellationRequested();
    fmt::print(stderr, "error: {}\n", interrupted ? "interrupted" : error.what());
    return interrupted ? 130 : 4;
  }
  return 0;
}

void Fail(const std::string& message) {
  throw std::runtime_error(message);
}

std::string ProgramBeside(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

namespace {

struct Ended {
  int code = 0;
  Cost cost;
};

// A program that is killed ends the benchmark.
Ended RunToEnd(const std::vector<std::string>& command, Errors errors) {
  if (CancellationRequested()) Fail("interrupted");
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = Spawn(command, errors);
  const double anonymous = WatchMemory(child);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child || !WIFEXITED(status)) {
    Fail(fmt::format("killed: {}", fmt::join(command, " ")));
  }
  return {.code = WEXITSTATUS(status),
          .cost = {.seconds = time.count(),
                   .cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime),
                   .user_seconds = Seconds(usage.ru_utime),
                   .resident = static_cast<double>(usage.ru_maxrss) / kKibibytes,
                   .anonymous = anonymous}};
}

// A code above `most` ends the benchmark.
Cost CostOf(const Ended& ended, int most, const std::vector<std::string>& command) {
  if (ended.code > most) Fail(fmt::format("failed: {}", fmt::join(command, " ")));
  return ended.cost;
}

}  // namespace

Cost Run(const std::vector<std::string>& command) {
  return CostOf(RunToEnd(command, Errors::kShown), 0, command);
}

Cost RunWithFindings(const std::vector<std::string>& command) {
  return CostOf(RunToEnd(command, Errors::kShown), 1, command);
}

std::optional<Cost> RunIfSupported(const std::vector<std::string>& command) {
  constexpr int kUnsupported = 5;
  const Ended ended = RunToEnd(command, Errors::kHidden);
  if (ended.code == kUnsupported) return std::nullopt;
  return CostOf(ended, 0, command);
}

Cost Summarize(const std::vector<Cost>& costs) {
  Cost summary = {.seconds = MedianOf(costs, &Cost::seconds),
                  .cpu_seconds = MedianOf(costs, &Cost::cpu_seconds),
                  .user_seconds = MedianOf(costs, &Cost::user_seconds)};
  for (const Cost& cost : costs) {
    summary.resident = std::max(summary.resident, cost.resident);
    summary.anonymous = std::max(summary.anonymous, cost.anonymous);
  }
  return summary;
}

}  // namespace prepack::bench
