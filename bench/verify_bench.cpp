// What verifying costs, as the user pays it: `prepack convert` and `prepack verify` of the same
// checkpoint in turns, as processes of their own; their ratio, and the memory that each takes. Then
// the rates of what the GEMM level spends its time on.
//
//   bench_verify [RUNS]

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model_rates.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace {

using prepack::bench::SampleFormat;

constexpr uint64_t kOutputs = 4096;
constexpr uint64_t kInputs = 14336;
constexpr std::array kFormats = {"ct pack-quantized 4-bit", "ct int-quantized 8-bit"};
constexpr std::array kTargets = {"vllm-cpu", "zentorch", "onednn"};
constexpr std::array<uint64_t, 2> kModules = {1, 4};

[[noreturn]] void Fail(const std::string& message) {
  fmt::print(stderr, "error: {}\n", message);
  std::exit(4);
}

// One run of a program.
struct Cost {
  double seconds = 0;
  double mebibytes = 0;  // most that it had in memory
};

Cost Run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const auto begin = std::chrono::steady_clock::now();
  if (posix_spawn(&child, arguments[0], &quiet, nullptr, arguments.data(), environ) != 0) {
    Fail(fmt::format("cannot run {}", command[0]));
  }
  posix_spawn_file_actions_destroy(&quiet);
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    Fail(fmt::format("failed: {}", fmt::join(command, " ")));
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  return {.seconds = time.count(), .mebibytes = static_cast<double>(usage.ru_maxrss) / 1024};
}

// The median time, and the most memory.
Cost Summarize(std::vector<Cost> costs) {
  const auto faster = [](const Cost& a, const Cost& b) { return a.seconds < b.seconds; };
  const auto larger = [](const Cost& a, const Cost& b) { return a.mebibytes < b.mebibytes; };
  std::ranges::sort(costs, faster);
  return {.seconds = costs[costs.size() / 2].seconds,
          .mebibytes = std::ranges::max_element(costs, larger)->mebibytes};
}

const SampleFormat& FormatOf(std::string_view name) {
  for (const SampleFormat& format : prepack::bench::SampleFormats()) {
    if (format.name == name) return format;
  }
  Fail(fmt::format("no such format: {}", name));
}

void Measure(const std::string& program, const SampleFormat& format, uint64_t modules, int runs) {
  const prepack::bench::ScratchFolder scratch;
  const std::filesystem::path source = scratch.path() / "source";
  std::filesystem::create_directory(source);
  if (!prepack::bench::WriteSample(source, format, kOutputs, kInputs, modules).ok()) {
    Fail("cannot write the sample");
  }
  for (const char* target : kTargets) {
    const std::string packed = (scratch.path() / target).string();
    std::vector<Cost> converts;
    std::vector<Cost> verifies;
    for (int run = 0; run < runs; ++run) {
      converts.push_back(
          Run({program, "convert", source.string(), "-t", target, "-o", packed, "--force"}));
      verifies.push_back(
          Run({program, "verify", packed, "--source", source.string(), "--engine", "reference"}));
    }
    const Cost convert = Summarize(converts);
    const Cost verify = Summarize(verifies);
    fmt::print("{:<28}{:<10}{:>8}{:>11.3f}{:>11.3f}{:>8.1f}{:>9.0f}{:>9.0f}\n", format.name, target,
               modules, convert.seconds, verify.seconds, verify.seconds / convert.seconds,
               convert.mebibytes, verify.mebibytes);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  if (runs < 1) Fail("RUNS must be a number above 0");
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = (self.parent_path() / "prepack").string();
  fmt::print("{:<28}{:<10}{:>8}{:>11}{:>11}{:>8}{:>9}{:>9}\n",
             fmt::format("{} x {}, median of {}", kOutputs, kInputs, runs), "target", "modules",
             "convert s", "verify s", "ratio", "MiB", "MiB");
  for (const uint64_t modules : kModules) {
    for (const char* format : kFormats) Measure(program, FormatOf(format), modules, runs);
  }
  fmt::print("\n");
  prepack::bench::PrintReferenceRates();
  fmt::print("\n");
  prepack::bench::PrintModelRates();
  fmt::print("\n");
  prepack::bench::PrintTruthRates();
  return 0;
}
