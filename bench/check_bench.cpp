// What checking and comparing cost, as the user pays it: whole runs of `prepack check` and
// `prepack diff` beside `cat FILES >/dev/null`, in turns, for every format.
//
//   bench_check [RUNS [MODULES]]

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "process.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace {

namespace fs = std::filesystem;
using prepack::bench::Cost;
using prepack::bench::Fail;
using prepack::bench::Run;
using prepack::bench::RunWithFindings;
using prepack::bench::SampleFormat;
using prepack::bench::Summarize;

constexpr uint64_t kOutputs = 4096;
constexpr uint64_t kInputs = 14336;

fs::path WriteModel(const fs::path& folder, const SampleFormat& format, uint64_t modules,
                    uint64_t seed) {
  fs::create_directory(folder);
  if (!prepack::bench::WriteSample(folder, format, kOutputs, kInputs, modules, seed).ok())
    Fail("cannot write the sample");
  return folder;
}

// Reads the models and throws away what it read.
std::vector<std::string> Cat(const std::vector<fs::path>& models) {
  std::vector<std::string> command = {"cat"};
  for (const fs::path& model : models) command.push_back((model / "model.safetensors").string());
  return command;
}

void PrintTurns(const std::string& what, const std::vector<std::string>& cat,
                const std::vector<std::string>& command, int runs) {
  std::vector<Cost> reads;
  std::vector<Cost> costs;
  for (int run = 0; run < runs; ++run) {
    reads.push_back(Run(cat));
    costs.push_back(RunWithFindings(command));
  }
  const Cost read = Summarize(reads);
  const Cost cost = Summarize(costs);
  fmt::print("{:<44}{:>8.3f}{:>8.3f}{:>8.1f}{:>8.1f}{:>8.0f}\n", what, read.seconds, cost.seconds,
             cost.seconds / read.seconds, cost.cpu_seconds / read.cpu_seconds, cost.anonymous);
  std::fflush(stdout);
}

void MeasureFormat(const std::string& program, const SampleFormat& format, uint64_t modules,
                   int runs) {
  const prepack::bench::ScratchFolder scratch;
  const fs::path one = WriteModel(scratch.path() / "one", format, modules, 1);
  const fs::path other = WriteModel(scratch.path() / "other", format, modules, 2);
  const auto cat_both = Cat({one, other});
  PrintTurns(format.name + ": check", Cat({one}), {program, "check", one.string()}, runs);
  PrintTurns(format.name + ": diff", cat_both, {program, "diff", one.string(), other.string()},
             runs);
}

void MeasureAll(int runs, int modules) {
  if (runs < 1 || modules < 1) Fail("RUNS and MODULES must be numbers above 0");
  const std::string program = prepack::bench::ProgramBeside("prepack");
  fmt::print("{:<44}{:>8}{:>8}{:>8}{:>8}{:>8}\n",
             fmt::format("{} x {} x {}, median of {}", modules, kOutputs, kInputs, runs), "cat s",
             "s", "ratio", "of CPU", "MiB");
  for (const SampleFormat& format : prepack::bench::SampleFormats()) {
    MeasureFormat(program, format, static_cast<uint64_t>(modules), runs);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const int modules = argc > 2 ? std::atoi(argv[2]) : 16;
  return prepack::bench::RunBenchmark([=] { MeasureAll(runs, modules); });
}
