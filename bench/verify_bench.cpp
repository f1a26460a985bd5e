// What verifying costs, as the user pays it: `prepack convert --no-flush` and `prepack verify` of
// the same checkpoint in turns, as processes of their own, for every pair of format and target;
// their ratio, the worst one, and the memory that each takes. Then the rates of what the GEMM level
// spends its time on.
//
//   bench_verify [RUNS [MODULES [FORMAT]]]

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model_rates.h"
#include "prepack/layouts/table.h"
#include "process.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace {

using prepack::bench::Cost;
using prepack::bench::Fail;
using prepack::bench::Run;
using prepack::bench::RunIfSupported;
using prepack::bench::SampleFormat;
using prepack::bench::Summarize;

constexpr uint64_t kOutputs = 4096;
constexpr uint64_t kInputs = 14336;

struct Worst {
  double ratio = 0;
  std::string pair;
};

std::vector<std::string> Convert(const std::string& program, const std::filesystem::path& source,
                                 std::string_view target, const std::filesystem::path& output) {
  return {program, "convert",       source.string(), "-t",         std::string(target),
          "-o",    output.string(), "--force",       "--no-flush", "-q"};
}

void MeasurePair(const std::string& program, const SampleFormat& format, std::string_view target,
                 const prepack::bench::ScratchFolder& scratch, int runs, Worst& worst) {
  const std::filesystem::path source = scratch.path() / "source";
  const std::filesystem::path packed = scratch.path() / "packed";
  std::filesystem::remove_all(packed);
  if (!RunIfSupported(Convert(program, source, target, packed))) return;
  std::vector<Cost> converts;
  std::vector<Cost> verifies;
  for (int run = 0; run < runs; ++run) {
    converts.push_back(Run(Convert(program, source, target, packed)));
    verifies.push_back(
        Run({program, "verify", packed.string(), "--source", source.string(), "-q"}));
  }
  const Cost convert = Summarize(converts);
  const Cost verify = Summarize(verifies);
  const double ratio = verify.seconds / convert.seconds;
  fmt::print("{:<28}{:<24}{:>10.3f}{:>10.3f}{:>8.1f}{:>8.1f}{:>8.0f}{:>8.0f}\n", format.name,
             target, convert.seconds, verify.seconds, ratio,
             verify.cpu_seconds / convert.cpu_seconds, convert.anonymous, verify.anonymous);
  std::fflush(stdout);
  if (ratio > worst.ratio) worst = {ratio, fmt::format("{} to {}", format.name, target)};
}

void MeasureFormat(const std::string& program, const SampleFormat& format, uint64_t modules,
                   int runs, Worst& worst) {
  const prepack::bench::ScratchFolder scratch;
  const std::filesystem::path source = scratch.path() / "source";
  std::filesystem::create_directory(source);
  if (!prepack::bench::WriteSample(source, format, kOutputs, kInputs, modules).ok())
    Fail("cannot write the sample");
  for (const prepack::Target& target : prepack::AllTargets()) {
    MeasurePair(program, format, target.id, scratch, runs, worst);
  }
}

void MeasureAll(int runs, int modules, std::string_view only) {
  if (runs < 1 || modules < 1) Fail("RUNS and MODULES must be numbers above 0");
  const std::string program = prepack::bench::ProgramBeside("prepack");
  fmt::print("{:<28}{:<24}{:>10}{:>10}{:>8}{:>8}{:>8}{:>8}\n",
             fmt::format("{} x {} x {}, median of {}", modules, kOutputs, kInputs, runs), "target",
             "convert s", "verify s", "ratio", "of CPU", "MiB", "MiB");
  Worst worst;
  for (const SampleFormat& format : prepack::bench::SampleFormats()) {
    if (!only.empty() && format.name != only) continue;
    MeasureFormat(program, format, static_cast<uint64_t>(modules), runs, worst);
  }
  if (worst.pair.empty()) Fail("no format has that name");
  fmt::print("the worst: {:.1f}, {}\n", worst.ratio, worst.pair);
  fmt::print("\n");
  prepack::bench::PrintReferenceRates();
  fmt::print("\n");
  prepack::bench::PrintModelRates();
  fmt::print("\n");
  prepack::bench::PrintTruthRates();
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const int modules = argc > 2 ? std::atoi(argv[2]) : 16;
  const std::string_view only = argc > 3 ? argv[3] : "";
  return prepack::bench::RunBenchmark([=] { MeasureAll(runs, modules, only); });
}
