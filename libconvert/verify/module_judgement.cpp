#include "verify/module_judgement.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

#include "verify/sqnr_bars.h"

namespace prepack {
namespace {

// In a single row a channel is a single number, which may be next to nothing by chance.
constexpr uint64_t kMinRowsOfChannel = 8;

// Judges one module figure by figure.
class Judge {
 public:
  Judge(ModuleVerification& module, LevelResult& result) : module_(module), result_(result) {}

  void ProductOf(const InputFigures& input, double channel_bar);
  void Agreement(double decibel, double bar);

  LevelState state() const { return state_; }

 private:
  // `what` is judged on `input`.
  void Compare(std::string_view what, const InputFigures& input, double decibel, double bar);
  void WorstChannel(const InputFigures& input, double bar);
  void Fail(std::string message) {
    result_.FailModule(module_.module, std::move(message));
    state_ = LevelState::kFailed;
  }

  ModuleVerification& module_;
  LevelResult& result_;
  LevelState state_ = LevelState::kPassed;
};

// What a figure just below the bar may come from.
std::string_view CauseOf(double decibel, double bar) {
  return bar == kMinKernelBF16Db && decibel >= kTruncatingKernelDb - 1
             ? "; a kernel that truncates to bf16 instead of rounding reaches 46 dB"
             : "";
}

void Judge::Compare(std::string_view what, const InputFigures& input, double decibel, double bar) {
  if (std::isnan(decibel)) {
    result_.problems.push_back(
        {module_.module, "module " + module_.module,
         fmt::format("the {} SQNR on {} activations proves nothing: the expected output is zero or "
                     "not finite",
                     what, input.input)});
    if (state_ == LevelState::kPassed) state_ = LevelState::kNotRun;
  } else if (decibel < bar) {
    Fail(
        fmt::format("the {} SQNR is too low on {} activations, M = {} (found {:.1f} dB, expected "
                    "at least {:.1f} dB{})",
                    what, input.input, input.rows, decibel, bar,
                    what == "kernel" ? CauseOf(decibel, bar) : ""));
  }
}

void Judge::WorstChannel(const InputFigures& input, double bar) {
  const double decibel = input.kernel.worst_channel_sqnr_db;
  if (input.rows < kMinRowsOfChannel || decibel >= bar) return;
  Fail(
      fmt::format("the kernel SQNR of output channel {} is too low on {} activations, M = {} "
                  "(found {:.1f} dB, expected at least {:.1f} dB)",
                  input.kernel.worst_channel, input.input, input.rows, decibel, bar));
}

void Judge::ProductOf(const InputFigures& input, double channel_bar) {
  const LevelState before = state_;
  Compare("kernel", input, input.kernel.sqnr_db, input.kernel_bar_db);
  if (state_ == before) WorstChannel(input, channel_bar);
  if (input.end_to_end_bar_db) {
    Compare("end-to-end", input, input.end_to_end.sqnr_db, *input.end_to_end_bar_db);
  }
}

void Judge::Agreement(double decibel, double bar) {
  // NaN: the products prove nothing, which was said.
  if (!(decibel < bar)) return;
  Fail(
      fmt::format("two implementations differ: {} and {} (found {:.1f} dB, expected at least "
                  "{:.1f} dB)",
                  module_.gemm->implementation, module_.gemm->second_implementation, decibel, bar));
}

std::optional<double> EndToEndBar(const ModuleBars& bars, const InputFigures& input) {
  // A single row tells too little.
  if (input.input == "gaussian" && input.rows >= kMinRowsOfChannel) return bars.end_to_end_db;
  if (input.input == "recorded") return bars.recorded_db;
  return std::nullopt;
}

}  // namespace

void JudgeProducts(const ModuleBars& bars, ModuleVerification& module, LevelResult& result) {
  Judge judge(module, result);
  for (InputFigures& input : module.gemm->inputs) {
    input.kernel_bar_db = bars.kernel_db;
    input.end_to_end_bar_db = EndToEndBar(bars, input);
    judge.ProductOf(input, bars.channel_db);
  }
  if (module.gemm->agreement_db) judge.Agreement(*module.gemm->agreement_db, bars.kernel_db);
  module.state(Level::kGemm) = judge.state();
}

void JudgeForm(const Status& form, const ModuleRecord& record, ModuleVerification& module,
               LevelResult& result) {
  if (form.ok()) return;
  const Problem problem{module.module, "module " + module.module, form.ToString()};
  if (!record.onednn) {
    result.notes.push_back(problem);
    return;
  }
  result.problems.push_back(problem);
  if (module.state(Level::kGemm) == LevelState::kPassed) {
    module.state(Level::kGemm) = LevelState::kNotRun;
  }
}

}  // namespace prepack
