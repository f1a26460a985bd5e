#include "verify/gemm_check.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "verify/kernel_weights.h"
#include "verify/module_judgement.h"
#include "verify/packed_operands.h"
#include "verify/quality_judgement.h"

namespace prepack {
namespace {

// An error that speaks of this module; any other ends the verification.
bool IsOfTheModule(const Status& status) {
  return status.kind() == ErrorKind::kUnsupported || status.kind() == ErrorKind::kUnavailable ||
         status.kind() == ErrorKind::kMalformed;
}

// Adds why a module was not multiplied.
void ReportFailure(const Status& status, Level level, ModuleVerification& module,
                   LevelResult& result) {
  if (status.kind() == ErrorKind::kMalformed) {
    module.state(level) = LevelState::kFailed;
    result.FailModule(module.module, fmt::format("it cannot be multiplied: {}", status.ToString()));
    return;
  }
  result.problems.push_back({module.module, "module " + module.module,
                             fmt::format("not multiplied: {}", status.ToString())});
}

// A level of which some modules were not judged has not run, unless it has failed.
void Conclude(const std::vector<const ModuleVerification*>& modules, Level level,
              std::string_view reason, LevelResult& result) {
  if (result.state == LevelState::kFailed) return;
  result.state = modules.empty() ? LevelState::kNotRun : LevelState::kPassed;
  if (modules.empty()) result.reason = "there is no packed module";
  for (const ModuleVerification* module : modules) {
    if (module->state(level) == LevelState::kPassed) continue;
    result.state = LevelState::kNotRun;
    result.reason = reason;
  }
}

class GemmPass {
 public:
  GemmPass(const PackedFolder& folder, const SecondDecoder& source, const GemmCheck& check,
           const SqnrBars& bars)
      : folder_(folder), source_(source), check_(check), bars_(bars) {}

  Status Run(Progress& progress, ModuleFigures& figures);
  GemmLevels TakeLevels() { return std::move(levels_); }

 private:
  Status RunModule(const PackedModule& packed, const ModuleRecord& record, Progress& progress,
                   ModuleVerification& module);

  const PackedFolder& folder_;
  const SecondDecoder& source_;
  const GemmCheck& check_;
  const SqnrBars& bars_;
  GemmLevels levels_;
};

Status GemmPass::Run(Progress& progress, ModuleFigures& figures) {
  const auto& records = folder_.manifest().modules;
  uint64_t total = 0;
  for (const auto& [name, record] : records) {
    if (InSample(check_.sample, name)) total += record.n * record.k;
  }
  progress.Begin("GEMM", total);
  std::vector<const ModuleVerification*> modules;
  for (const auto& [name, record] : records) {
    if (!InSample(check_.sample, name)) continue;
    Result<PackedModule> packed = PackedModule::Open(folder_, name, record, check_.products.isa);
    if (!packed.ok()) return packed.status();
    progress.BeginItem(name);
    ModuleVerification& module = figures.at(name);
    Status status = RunModule(*packed, record, progress, module);
    if (!status.ok()) return status;
    modules.push_back(&module);
  }
  if (check_.judge_gemm) {
    Conclude(modules, Level::kGemm,
             "some modules were not multiplied, or their result proves nothing", levels_.gemm);
  }
  if (check_.judge_quality) {
    NoteOutliers(folder_.manifest(), figures, levels_.quality);
    Conclude(modules, Level::kQuality, "some modules could not be compared", levels_.quality);
  }
  return {};
}

Status GemmPass::RunModule(const PackedModule& packed, const ModuleRecord& record,
                           Progress& progress, ModuleVerification& module) {
  const std::optional<double> wanted = bars_.Of(module.module);
  Result<ModuleProducts> products = MultiplyModule(packed, source_, check_.products, progress);
  if (!products.ok()) {
    if (!IsOfTheModule(products.status())) return products.status();
    if (check_.judge_gemm) ReportFailure(products.status(), Level::kGemm, module, levels_.gemm);
    if (check_.judge_quality) {
      ReportFailure(products.status(), Level::kQuality, module, levels_.quality);
    }
    return {};
  }
  if (check_.judge_gemm) {
    const ModuleBars bars{
        .kernel_db = KernelBar(InputDType(packed)),
        .rounded_twice = ConsumerScales(packed.layout(), packed.request()),
        .cancels = record.scheme.activations.dynamic && !record.scheme.activations.symmetric,
        .end_to_end_db = wanted.value_or(DefaultEndToEndBar(record.scheme.activations)),
        .recorded_db = wanted};
    module.gemm = std::move(products->gemm);
    JudgeProducts(bars, module, levels_.gemm);
    JudgeForm(products->form, record, module, levels_.gemm);
  }
  if (check_.judge_quality) {
    module.quality = products->quality;
    JudgeQuality(products->no_quality, module, levels_.quality);
  }
  return {};
}

}  // namespace

Result<GemmLevels> CheckGemm(const PackedFolder& folder, const SecondDecoder& source,
                             const GemmCheck& check, const SqnrBars& bars, Progress& progress,
                             ModuleFigures& figures) {
  GemmPass pass(folder, source, check, bars);
  Status status = pass.Run(progress, figures);
  if (!status.ok()) return status;
  return pass.TakeLevels();
}

}  // namespace prepack
