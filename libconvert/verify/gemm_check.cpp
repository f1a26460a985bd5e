#include "verify/gemm_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "verify/engine_gemm.h"
#include "verify/model_gemm.h"

namespace prepack {
namespace {

// What became of one module.
struct Outcome {
  Status status;  // kUnsupported: it could not be multiplied; kMalformed: it cannot be right
  GemmSums sums;
};

bool IsOfTheModule(const Status& status) {
  return status.ok() || status.kind() == ErrorKind::kUnsupported ||
         status.kind() == ErrorKind::kMalformed;
}

// Judges one figure; false when it proves nothing.
bool Judge(const std::string& where, std::string_view figure, double decibel, double bar,
           LevelResult& result) {
  if (std::isnan(decibel)) {
    result.problems.push_back(
        {"", where,
         fmt::format("the {} SQNR proves nothing: the expected output is zero or not finite",
                     figure)});
    return false;
  }
  if (decibel < bar) {
    result.Fail(where,
                fmt::format("the {} SQNR is too low (found {:.1f} dB, expected at least {:.1f} dB)",
                            figure, decibel, bar));
  }
  return true;
}

// Adds what became of a module; false when it proves nothing.
bool Report(const Outcome& outcome, const GemmBars& bars, const ModuleRecord& record,
            ModuleVerification& module, LevelResult& result) {
  const std::string where = fmt::format("module {}", module.module);
  if (!outcome.status.ok()) {
    if (outcome.status.kind() == ErrorKind::kMalformed) {
      result.Fail(where, fmt::format("it cannot be multiplied: {}", outcome.status.ToString()));
    } else {
      result.problems.push_back(
          {"", where, fmt::format("not multiplied: {}", outcome.status.ToString())});
    }
    return false;
  }
  const double bar = bars.end_to_end_db.value_or(DefaultEndToEndBar(record.scheme.activations));
  const double kernel_db = outcome.sums.kernel.Decibel();
  const double end_to_end_db = outcome.sums.end_to_end.Decibel();
  module.gemm = GemmFigures{.implementation = outcome.sums.implementation,
                            .activations = outcome.sums.activations,
                            .inputs = {{.input = "gaussian",
                                        .rows = kGemmRows,
                                        .kernel = {.sqnr_db = kernel_db},
                                        .end_to_end = {.sqnr_db = end_to_end_db},
                                        .kernel_bar_db = bars.kernel_db,
                                        .end_to_end_bar_db = bar}},
                            .second_implementation = {},
                            .agreement_db = {}};
  const bool kernel = Judge(where, "kernel", kernel_db, bars.kernel_db, result);
  const bool end_to_end = Judge(where, "end-to-end", end_to_end_db, bar, result);
  return kernel && end_to_end;
}

}  // namespace

double DefaultEndToEndBar(const ActivationScheme& activations) {
  switch (activations.type) {
    case ActivationType::kNone:
      return kMinEndToEndSqnrDb;
    case ActivationType::kInt:
      return kMinEndToEndInt8SqnrDb;
    case ActivationType::kFloat:
      return kMinEndToEndFp8SqnrDb;
  }
  return kMinEndToEndSqnrDb;
}

bool HasModuleForEngine(const Manifest& manifest) {
  return std::ranges::any_of(manifest.modules, [&](const auto& module) {
    return EngineTakes(RequestOf(manifest, module.second));
  });
}

Result<LevelResult> CheckGemm(const PackedFolder& folder, const SecondDecoder& source,
                              GemmEngine* engine, const GemmBars& bars, Isa isa, unsigned threads,
                              Progress& progress,
                              std::map<std::string, ModuleVerification>& figures) {
  const auto& records = folder.manifest().modules;
  uint64_t total = 0;
  std::vector<PackedModule> modules;
  for (const auto& [name, record] : records) {
    Result<PackedModule> packed = PackedModule::Open(folder, name, record, isa);
    if (!packed.ok()) return packed.status();
    modules.push_back(*std::move(packed));
    total += record.n * record.k;
  }
  progress.Begin("GEMM", total);

  std::mutex engine_mutex;
  std::vector<Outcome> outcomes(modules.size());
  Status status = ParallelFor(modules.size(), threads, [&](size_t index, unsigned) -> Status {
    const PackedModule& packed = modules[index];
    Result<GemmSums> multiplied =
        engine != nullptr && EngineTakes(packed.request())
            ? MultiplyByEngine(packed, source, *engine, engine_mutex, progress)
            : MultiplyByModel(packed, source, progress);
    if (!IsOfTheModule(multiplied.status())) return multiplied.status();
    outcomes[index].status = multiplied.status();
    if (multiplied.ok()) outcomes[index].sums = *std::move(multiplied);
    return {};
  });
  if (!status.ok()) return status;

  LevelResult result{.state = LevelState::kPassed};
  bool all_prove_something = !modules.empty();
  for (size_t i = 0; i < modules.size(); ++i) {
    const std::string& name = modules[i].name();
    const bool proves = Report(outcomes[i], bars, records.at(name), figures.at(name), result);
    all_prove_something = all_prove_something && proves;
  }
  if (result.state == LevelState::kPassed && !all_prove_something) {
    result.state = LevelState::kNotRun;
    result.reason = "some modules were not multiplied, or their result proves nothing";
  }
  return result;
}

}  // namespace prepack
