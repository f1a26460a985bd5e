// What opening and planning cost, as the user pays it: `prepack inspect` and `prepack plan`, as
// processes of their own, of a checkpoint of 20 files and 2,000 tensors whose data are holes. Then
// the memory that a conversion of a model with very many small modules takes, which is the memory
// of what is known of modules and tensors.
//
//   bench_headers [RUNS]

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "llama_checkpoint.h"
#include "process.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace {

using prepack::bench::Cost;
using prepack::bench::Fail;
using prepack::bench::LlamaShape;
using prepack::bench::SampleCheckpoint;
using prepack::bench::SampleFormat;

constexpr uint64_t kShards = 20;
constexpr LlamaShape kTall = {.layers = 96, .hidden = 8192, .intermediate = 28672};
// 47,092 modules, as DeepSeek-V3 has, of the least size.
constexpr LlamaShape kExperts = {.layers = 61, .hidden = 128, .intermediate = 128, .experts = 256};
constexpr std::array<std::string_view, 3> kFormats = {"ct-w4a16", "ct-w8a8", "gptq"};

SampleCheckpoint CheckpointOf(std::string_view format, const LlamaShape& shape) {
  SampleCheckpoint checkpoint = prepack::bench::LlamaCheckpoint(shape);
  for (const SampleFormat& known : prepack::bench::SampleFormats()) {
    if (known.id == format) checkpoint.format = known;
  }
  checkpoint.shards = kShards;
  return checkpoint;
}

void Write(const std::filesystem::path& folder, const SampleCheckpoint& checkpoint) {
  std::filesystem::create_directory(folder);
  const prepack::Status status = prepack::bench::WriteCheckpoint(folder, checkpoint);
  if (!status.ok()) Fail(status.ToString());
}

// Commands of one checkpoint, in turns.
void MeasureHeaders(const std::string& program, std::string_view format, int runs) {
  const prepack::bench::ScratchFolder scratch;
  const std::string source = (scratch.path() / "source").string();
  SampleCheckpoint checkpoint = CheckpointOf(format, kTall);
  checkpoint.sparse = true;
  Write(source, checkpoint);
  const std::vector<std::vector<std::string>> commands = {
      {program, "inspect", source},
      {program, "inspect", source, "--json"},
      {program, "plan", source, "-t", "vllm-cpu"},
      {program, "plan", source, "-t", "vllm-cpu", "--json"}};
  std::vector<std::vector<Cost>> costs(commands.size());
  for (int run = 0; run <= runs; ++run) {
    for (size_t i = 0; i < commands.size(); ++i) {
      const Cost cost = prepack::bench::Run(commands[i]);
      if (run != 0) costs[i].push_back(cost);  // the first one warms the caches
    }
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    const auto faster = [](const Cost& a, const Cost& b) { return a.seconds < b.seconds; };
    const Cost best = *std::ranges::min_element(costs[i], faster);
    const Cost median = prepack::bench::Summarize(costs[i]);
    fmt::print("{:<12}{:<16}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n", format,
               commands[i][1] + (commands[i].back() == "--json" ? " --json" : ""),
               1e3 * median.seconds, 1e3 * best.seconds, 1e3 * median.cpu_seconds, median.resident);
  }
}

void MeasureMemory(const std::string& program, std::string_view format) {
  const prepack::bench::ScratchFolder scratch;
  const std::string source = (scratch.path() / "source").string();
  const SampleCheckpoint checkpoint = CheckpointOf(format, kExperts);
  Write(source, checkpoint);
  const std::string packed = (scratch.path() / "packed").string();
  const Cost cost = prepack::bench::Run(
      {program, "convert", source, "-t", "vllm-cpu", "-o", packed, "--jobs", "2"});
  const auto modules = static_cast<double>(checkpoint.modules.size());
  fmt::print("{:<12}{:>10}{:>12.2f}{:>12.1f}{:>16.2f}\n", format, checkpoint.modules.size(),
             cost.seconds, cost.anonymous, 1024 * cost.anonymous / modules);
}

void MeasureAll(int runs) {
  if (runs < 1) Fail("RUNS must be a number above 0");
  const std::string program = prepack::bench::ProgramBeside("prepack");
  fmt::print("{:<12}{:<16}{:>10}{:>10}{:>10}{:>10}\n", "format", fmt::format("{} runs", runs),
             "median ms", "best ms", "CPU ms", "MiB");
  for (const std::string_view format : kFormats) MeasureHeaders(program, format, runs);
  fmt::print("\n{:<12}{:>10}{:>12}{:>12}{:>16}\n", "convert", "modules", "seconds", "anon. MiB",
             "KiB per module");
  for (const std::string_view format : kFormats) MeasureMemory(program, format);
}

}  // namespace

int main(int argc, char** argv) {
  return prepack::bench::RunBenchmark([&] { MeasureAll(argc > 1 ? std::atoi(argv[1]) : 21); });
}
