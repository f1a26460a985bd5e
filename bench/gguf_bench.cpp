// What writing a GGUF file costs: the part of `prepack convert --target gguf` after llama.cpp's
// converter has been asked, which is once for each format, beside `cp -r` of the same checkpoint,
// in turns.
//
//   bench_gguf LLAMA_CPP [RUNS [LAYERS]] [--python PROGRAM] [--format FORMAT...]

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/convert/gguf/convert.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/packed/packed_model.h"
#include "process.h"
#include "scratch_folder.h"

namespace {

namespace fs = std::filesystem;
using prepack::bench::Cost;
using prepack::bench::Fail;
using prepack::bench::ProgramBeside;
using prepack::bench::Run;

struct Options {
  std::string llama_cpp;
  int runs = 7;
  int layers = 8;  // of Llama-3-8B's shape, with a small vocabulary: 1 GB at 4 bits
  std::string python = "python3";
  std::vector<std::string> formats = {"ct-w4a16", "gptq",     "awq",     "ct-w4a16-asym",
                                      "ct-w8a8",  "ct-mxfp4", "ct-nvfp4"};
};

template <typename T>
T Take(prepack::Result<T> result) {
  if (!result.ok()) Fail(result.status().ToString());
  return *std::move(result);
}

// Leaves so many bytes of memory free that have just been in use: pages that are new to a virtual
// machine cost more than what is done with them, whoever happens to get them.
void LeaveFreeMemory(const fs::path& filler, uint64_t bytes) {
  Run({"dd", "if=/dev/zero", "of=" + filler.string(), "bs=1M", "status=none",
       fmt::format("count={}", bytes >> 20)});
  fs::remove(filler);
}

// Seconds that a file takes to be there, not flushed.
double Write(const prepack::gguf::ConvertOptions& options, prepack::Checkpoint& checkpoint,
             const prepack::QuantizedModel& model, const prepack::gguf::Plan& plan) {
  prepack::Progress progress;
  const auto begin = std::chrono::steady_clock::now();
  Take(prepack::gguf::WritePlanned(options, checkpoint, model, plan, progress));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return seconds.count();
}

void Measure(const std::string& format, const Options& options) {
  const prepack::bench::ScratchFolder scratch;
  const fs::path source = scratch.path() / "source";
  const fs::path copy = scratch.path() / "copy";
  Run({ProgramBeside("generate_checkpoint"), source.string(), "--format", format, "--layers",
       std::to_string(options.layers), "--embeddings", "--tokens", "8192"});
  Run({"sync", "-f", source.string()});
  prepack::gguf::ConvertOptions convert;
  convert.plan.source = source;
  convert.plan.llama_cpp = options.llama_cpp;
  convert.plan.python = options.python;
  convert.output = scratch.path() / "model.gguf";
  convert.flush = false;
  auto checkpoint = Take(prepack::Checkpoint::Open(source));
  const auto model = Take(prepack::ReadSourceModel(checkpoint, {}));
  const fs::path answers = scratch.path() / "answers";
  fs::create_directory(answers);
  const auto plan = Take(prepack::gguf::MakePlan(checkpoint, model, convert.plan, answers));
  std::vector<Cost> copies;
  std::vector<Cost> writes;
  const uint64_t most = std::max(plan.tensor_bytes(), checkpoint.total_bytes()) * 9 / 8;
  for (int run = 0; run <= options.runs; ++run) {
    LeaveFreeMemory(scratch.path() / "filler", most);
    copies.push_back(Run({"cp", "-r", source.string(), copy.string()}));
    fs::remove_all(copy);
    LeaveFreeMemory(scratch.path() / "filler", most);
    writes.push_back({.seconds = Write(convert, checkpoint, model, plan)});
    fs::remove(convert.output);
    if (run != 0) continue;  // it has warmed up
    copies.clear();
    writes.clear();
  }
  const double gigabytes = static_cast<double>(plan.tensor_bytes()) / 1e9;
  const double cp = prepack::bench::Summarize(copies).seconds;
  const double write = prepack::bench::Summarize(writes).seconds;
  fmt::print("{:<16}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}\n", format, gigabytes, cp, write,
             write / cp, gigabytes / write);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Writing of GGUF files, beside cp of the same checkpoint.", "bench_gguf"};
  Options options;
  app.add_option("LLAMA_CPP", options.llama_cpp, "The sources of llama.cpp")->required();
  app.add_option("RUNS", options.runs, "Runs of each, of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("LAYERS", options.layers, "Layers of the checkpoints, of 0.12 GB at 4 bits")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--python", options.python, "With torch and transformers")->capture_default_str();
  app.add_option("--format", options.formats, "These formats of generate_checkpoint")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  return prepack::bench::RunBenchmark([&options] {
    fmt::print("{} layers, --no-flush, in the page cache, median of {}; GB of the output\n",
               options.layers, options.runs);
    fmt::print("{:<16}{:>8}{:>8}{:>8}{:>8}{:>8}\n", "format", "GB", "cp s", "write s", "of cp",
               "GB/s");
    for (const std::string& format : options.formats) Measure(format, options);
  });
}
