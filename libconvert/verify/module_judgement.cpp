#include "verify/module_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "verify/gemm_inputs.h"
#include "verify/sqnr_bars.h"

namespace prepack {
namespace {

// In a single row a channel is a single number, which may be next to nothing by chance.
constexpr uint64_t kMinRowsOfChannel = 8;

// A figure, its bar, and the activations that it was found with.
struct Measured {
  const InputFigures* input = nullptr;
  double decibel = 0;
  double bar = 0;

  // Below zero: the bar is missed. NaN: it proves nothing.
  double Margin() const { return decibel - bar; }
};

// The one that is furthest below its bar, or nullptr when all reach theirs.
const Measured* Worst(const std::vector<Measured>& figures) {
  const Measured* worst = nullptr;
  for (const Measured& figure : figures) {
    if (!(figure.Margin() < 0)) continue;
    if (worst == nullptr || figure.Margin() < worst->Margin()) worst = &figure;
  }
  return worst;
}

// Judges one module: one problem per kind of figure, which speaks of the worst case.
class Judge {
 public:
  Judge(ModuleVerification& module, LevelResult& result) : module_(module), result_(result) {}

  void Kernel(const std::vector<Measured>& figures);
  void WorstChannel(const std::vector<Measured>& figures);
  void EndToEnd(const std::vector<Measured>& figures) { Compare("end-to-end", figures); }
  void Agreement(double decibel, double bar);

  LevelState state() const { return state_; }

 private:
  void Compare(std::string_view what, const std::vector<Measured>& figures);
  void Fail(std::string message) {
    result_.FailModule(module_.module, std::move(message));
    state_ = LevelState::kFailed;
  }

  ModuleVerification& module_;
  LevelResult& result_;
  LevelState state_ = LevelState::kPassed;
};

// What a figure just below the bar may come from.
std::string_view CauseOf(std::string_view what, const Measured& figure) {
  const bool truncated = what == "kernel" && figure.bar == kMinKernelBF16Db &&
                         figure.decibel >= kTruncatingKernelDb - 1;
  return truncated ? "; a kernel that truncates to bf16 instead of rounding reaches 46 dB" : "";
}

void Judge::Compare(std::string_view what, const std::vector<Measured>& figures) {
  const auto nothing = std::ranges::find_if(
      figures, [](const Measured& figure) { return std::isnan(figure.decibel); });
  if (nothing != figures.end()) {
    result_.problems.push_back(
        {module_.module, "module " + module_.module,
         fmt::format("the {} SQNR on {} activations proves nothing: the expected output is zero or "
                     "not finite",
                     what, nothing->input->input)});
    if (state_ == LevelState::kPassed) state_ = LevelState::kNotRun;
  }
  const Measured* worst = Worst(figures);
  if (worst == nullptr) return;
  Fail(
      fmt::format("the {} SQNR is too low on {} activations, M = {} (found {:.1f} dB, expected at "
                  "least {:.1f} dB{})",
                  what, worst->input->input, worst->input->rows, worst->decibel, worst->bar,
                  CauseOf(what, *worst)));
}

void Judge::Kernel(const std::vector<Measured>& figures) {
  Compare("kernel", figures);
}

void Judge::WorstChannel(const std::vector<Measured>& figures) {
  const Measured* worst = Worst(figures);
  // When the whole is too low, its worst channel is no news.
  if (worst == nullptr || state_ == LevelState::kFailed) return;
  Fail(
      fmt::format("the kernel SQNR of output channel {} is too low on {} activations, M = {} "
                  "(found {:.1f} dB, expected at least {:.1f} dB)",
                  worst->input->kernel.worst_channel, worst->input->input, worst->input->rows,
                  worst->decibel, worst->bar));
}

void Judge::Agreement(double decibel, double bar) {
  // NaN: the products prove nothing, which was said.
  if (!(decibel < bar)) return;
  Fail(
      fmt::format("two implementations differ: {} and {} (found {:.1f} dB, expected at least "
                  "{:.1f} dB)",
                  module_.gemm->implementation, module_.gemm->second_implementation, decibel, bar));
}

// One-hot rows may miss all weights of a module that is nearly zero. And a kernel that takes a zero
// point off sums afterwards cancels them against nearly the same: what little is left of one weight
// says more of f32 than of the weight.
bool IsJudged(const ModuleBars& bars, const InputFigures& input) {
  if (input.input != "one-hot") return true;
  const bool missed = std::isnan(input.kernel.sqnr_db) && input.kernel.max_abs_error == 0;
  return !missed && !bars.cancels;
}

bool JudgesChannels(const ModuleBars& bars, const InputFigures& input) {
  return input.rows >= (bars.rounded_twice ? kGaussianRows : kMinRowsOfChannel);
}

std::optional<double> EndToEndBar(const ModuleBars& bars, const InputFigures& input) {
  // A single row tells too little.
  if (input.input == "gaussian" && input.rows >= kMinRowsOfChannel) return bars.end_to_end_db;
  if (input.input == "recorded") return bars.recorded_db;
  return std::nullopt;
}

}  // namespace

void JudgeProducts(const ModuleBars& bars, ModuleVerification& module, LevelResult& result) {
  std::vector<Measured> kernel;
  std::vector<Measured> channels;
  std::vector<Measured> end_to_end;
  for (InputFigures& input : module.gemm->inputs) {
    if (!IsJudged(bars, input)) continue;
    input.kernel_bar_db = bars.kernel_db;
    input.end_to_end_bar_db = EndToEndBar(bars, input);
    kernel.push_back({&input, input.kernel.sqnr_db, bars.kernel_db});
    if (JudgesChannels(bars, input)) {
      channels.push_back({&input, input.kernel.worst_channel_sqnr_db,
                          bars.kernel_db - (bars.rounded_twice ? kRoundedTwiceDb : 0)});
    }
    if (input.end_to_end_bar_db) {
      end_to_end.push_back({&input, input.end_to_end.sqnr_db, *input.end_to_end_bar_db});
    }
  }
  Judge judge(module, result);
  judge.Kernel(kernel);
  judge.WorstChannel(channels);
  judge.EndToEnd(end_to_end);
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
