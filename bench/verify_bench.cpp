// What verifying costs, as the user pays it: `prepack convert` and `prepack verify` of the same
// checkpoint in turns, as processes of their own; their ratio, and the memory that each takes. Then
// the rates of what the GEMM level spends its time on.
//
//   bench_verify [RUNS]

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model_rates.h"
#include "process.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace {

using prepack::bench::Cost;
using prepack::bench::Fail;
using prepack::bench::Run;
using prepack::bench::SampleFormat;
using prepack::bench::Summarize;

constexpr uint64_t kOutputs = 4096;
constexpr uint64_t kInputs = 14336;
constexpr std::array kFormats = {"ct pack-quantized 4-bit", "ct int-quantized 8-bit"};
constexpr std::array kTargets = {"vllm-cpu", "zentorch", "onednn"};
constexpr std::array<uint64_t, 2> kModules = {1, 4};

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
  if (!prepack::bench::WriteSample(source, format, kOutputs, kInputs, modules).ok())
    Fail("cannot write the sample");
  for (const char* target : kTargets) {
    const std::string packed = (scratch.path() / target).string();
    std::vector<Cost> converts;
    std::vector<Cost> verifies;
    for (int run = 0; run < runs; ++run) {
      converts.push_back(
          Run({program, "convert", source.string(), "-t", target, "-o", packed, "--force", "-q"}));
      verifies.push_back(Run(
          {program, "verify", packed, "--source", source.string(), "--engine", "reference", "-q"}));
    }
    const Cost convert = Summarize(converts);
    const Cost verify = Summarize(verifies);
    fmt::print("{:<28}{:<10}{:>8}{:>11.3f}{:>11.3f}{:>8.1f}{:>9.0f}{:>9.0f}\n", format.name, target,
               modules, convert.seconds, verify.seconds, verify.seconds / convert.seconds,
               convert.resident, verify.resident);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  if (runs < 1) Fail("RUNS must be a number above 0");
  const std::string program = prepack::bench::ProgramBeside("prepack");
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
