// The bars that products must reach, and the words in which a missed bar is reported.
// docs/verify.md lists the bars; the reasons for their values are in judgement.h.

#include "prepack/verify/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/regex.h"
#include "prepack/layouts/table.h"
#include "prepack/measure/baseline.h"
#include "prepack/verify/gemm_inputs.h"

namespace prepack {
namespace {

constexpr double kMaxDb = 200;

std::string TextOf(const SqnrBar& bar) {
  return fmt::format("--min-sqnr '{}={}'", bar.pattern, bar.decibel);
}

}  // namespace

std::string SkippedOnRequest(Level level) {
  return fmt::format("skipped on request (--skip {})", LevelName(level));
}

Result<SqnrBar> ParseSqnrBar(std::string_view text) {
  PREPACK_TRY_ASSIGN(PatternOption option, SplitPatternOption("--min-sqnr", text));
  const std::string& number = option.value;
  SqnrBar bar;
  bar.pattern = std::move(option.pattern);
  char* end = nullptr;
  bar.decibel = std::strtod(number.c_str(), &end);
  const bool whole = !number.empty() && end == number.c_str() + number.size();
  // No figure would be below a bar of NaN, so it must not be accepted.
  if (whole && bar.decibel >= 0 && bar.decibel <= kMaxDb) return bar;
  return Usage("--min-sqnr", "not a number of dB")
      .Found(text)
      .Expected(fmt::format("[PATTERN=]DB with 0 to {} dB", kMaxDb));
}

double KernelBar(DType output) {
  if (output == DType::kBF16) return kMinKernelBF16Db;
  return output == DType::kF16 ? kMinKernelF16Db : kMinKernelF32Db;
}

double DefaultEndToEndBar(const ActivationScheme& activations, bool cuts_fractions) {
  switch (activations.type) {
    case ActivationType::kNone:
      return kMinEndToEndDb;
    case ActivationType::kInt:
      return kMinEndToEndInt8Db - (cuts_fractions ? kCutFractionsDb : 0.0);
    case ActivationType::kFloat:
      return kMinEndToEndFp8Db;
  }
  return kMinEndToEndDb;
}

Result<SqnrBars> SqnrBars::Make(std::span<const SqnrBar> bars,
                                std::span<const std::string> modules) {
  SqnrBars made;
  for (const SqnrBar& bar : bars) {
    PREPACK_TRY_ASSIGN(const ModulePattern pattern, ModulePattern::Make(bar.pattern, TextOf(bar)));
    bool used = false;
    for (const std::string& module : modules) {
      PREPACK_TRY_ASSIGN(const bool found, pattern.IsFor(module));
      if (!found) continue;
      made.decibel_[module] = bar.decibel;
      used = true;
    }
    if (!used) {
      return Usage(TextOf(bar), "the pattern matches no packed module")
          .Hint("`prepack inspect` lists the modules");
    }
  }
  return made;
}

std::optional<double> SqnrBars::Of(const std::string& module) const {
  const auto found = decibel_.find(module);
  return found == decibel_.end() ? std::nullopt : std::optional(found->second);
}

namespace {

// In a single row a channel is a single number, which may be close to zero by chance.
constexpr uint64_t kMinRowsOfChannel = 8;

// A figure, its bar, and the activations that it was found with.
struct Measured {
  const InputFigures* input = nullptr;
  double decibel = 0;
  double bar = 0;

  // Below zero: the bar is missed. NaN: the figure proves nothing.
  double Margin() const { return decibel - bar; }
};

// The figure that is furthest below its bar, or nullptr if all reach theirs.
const Measured* Worst(const std::vector<Measured>& figures) {
  const Measured* worst = nullptr;
  for (const Measured& figure : figures) {
    if (!(figure.Margin() < 0)) continue;
    if (worst == nullptr || figure.Margin() < worst->Margin()) worst = &figure;
  }
  return worst;
}

// Judges one module. It reports one problem per kind of figure, for the worst case.
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

// A possible reason for a figure just below the bar.
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
  // If the whole is too low, its worst channel says nothing new.
  if (worst == nullptr || state_ == LevelState::kFailed) return;
  Fail(
      fmt::format("the kernel SQNR of output channel {} is too low on {} activations, M = {} "
                  "(found {:.1f} dB, expected at least {:.1f} dB)",
                  worst->input->kernel.worst_channel, worst->input->input, worst->input->rows,
                  worst->decibel, worst->bar));
}

void Judge::Agreement(double decibel, double bar) {
  // NaN: the products prove nothing, which has been reported.
  if (!(decibel < bar)) return;
  Fail(
      fmt::format("two implementations differ: {} and {} (found {:.1f} dB, expected at least "
                  "{:.1f} dB)",
                  module_.gemm->implementation, module_.gemm->second_implementation, decibel, bar));
}

// One-hot rows may miss all weights of a module that is nearly zero. And a kernel that subtracts
// the zero point from the sums afterwards cancels nearly equal numbers: the little that is left of
// one weight says more about f32 than about the weight.
bool IsJudged(const ModuleBars& bars, const InputFigures& input) {
  if (input.input != "one-hot") return true;
  const bool missed = std::isnan(input.kernel.sqnr_db) && input.kernel.max_abs_error == 0;
  return !missed && !bars.cancels;
}

bool JudgesChannels(const ModuleBars& bars, const InputFigures& input) {
  return input.rows >= (bars.rounded_twice ? kGaussianRows : kMinRowsOfChannel);
}

std::optional<double> EndToEndBar(const ModuleBars& bars, const InputFigures& input) {
  // Whatever is left of a module of zeros is infinitely more than zero; the kernel figure judges
  // it.
  if (bars.rounds_zeros && std::isinf(input.end_to_end.sqnr_db)) return std::nullopt;
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

void Conclude(std::span<const ModuleVerification* const> modules, Level level,
              std::string_view reason, LevelResult& result) {
  if (result.state == LevelState::kFailed) return;
  result.state = modules.empty() ? LevelState::kNotRun : LevelState::kPassed;
  if (modules.empty()) result.reason = "the folder has no packed module";
  for (const ModuleVerification* module : modules) {
    if (module->state(level) == LevelState::kPassed) continue;
    result.state = LevelState::kNotRun;
    result.reason = reason;
  }
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

namespace {

// A figure of a module: by weights, or by outputs.
using QualityFigure = std::optional<double> QualityFigures::*;

void NoteOutliersOf(QualityFigure figure, const char* what, const Manifest& manifest,
                    ModuleFigures& modules, LevelResult& result) {
  std::vector<PeerFigure> peers;
  std::vector<ModuleVerification*> compared;
  for (auto& [name, module] : modules) {
    if (!module.quality || !((*module.quality).*figure)) continue;
    peers.push_back({.peers = PeersOf(name, manifest.modules.at(name).scheme),
                     .sqnr_db = *((*module.quality).*figure),
                     .outlier_below_db = {}});
    compared.push_back(&module);
  }
  MarkOutliers(peers);
  for (size_t i = 0; i < peers.size(); ++i) {
    if (!peers[i].outlier_below_db) continue;
    std::optional<double>& below = compared[i]->quality->below_peers_db;
    below = std::max(below.value_or(0), *peers[i].outlier_below_db);
    result.notes.push_back(
        {compared[i]->module, "module " + compared[i]->module,
         fmt::format("an outlier: its {} SQNR of {:.1f} dB is {:.1f} dB below the median of its "
                     "peers",
                     what, peers[i].sqnr_db, *peers[i].outlier_below_db)});
  }
}

}  // namespace

void JudgeQuality(const std::string& missing, ModuleVerification& module, LevelResult& result) {
  if (!module.quality) {
    result.problems.push_back({module.module, "module " + module.module, missing});
    return;
  }
  const double decibel = module.quality->weight_sqnr_db.value_or(NAN);
  const std::string where = "module " + module.module;
  if (std::isnan(decibel)) {
    result.problems.push_back({module.module, where,
                               "the comparison proves nothing: the unquantized weight is zero or "
                               "not finite"});
    return;
  }
  module.state(Level::kQuality) = LevelState::kPassed;
  if (decibel >= kUnrelatedDb) return;
  // Not a failure: quantizers that fold scales into the preceding layers (SmoothQuant, AWQ) do this
  // to perfect weights.
  result.notes.push_back(
      {module.module, where,
       fmt::format("it is as far from the unquantized model as unrelated weights would be (found "
                   "{:.1f} dB, expected at least {:.1f} dB), unless its quantizer has folded "
                   "scales into the preceding layers",
                   decibel, kUnrelatedDb)});
}

void NoteOutliers(const Manifest& manifest, ModuleFigures& modules, LevelResult& result) {
  NoteOutliersOf(&QualityFigures::weight_sqnr_db, "weight", manifest, modules, result);
  NoteOutliersOf(&QualityFigures::output_sqnr_db, "output", manifest, modules, result);
}

namespace {

// "16-bit activations", "activations of 8-bit int per token dynamic".
std::string NameOf(const ActivationScheme& activations) {
  if (activations.type == ActivationType::kNone) return "16-bit activations";
  return fmt::format("activations of {}", DescribeActivations(activations));
}

// Empty if the module was packed as the checkpoint says, or as every kernel for such weights
// requires, or as every module of the target is.
std::string DecisionOf(const Manifest& manifest, const QuantizedLinear& linear,
                       const ModuleRecord& record) {
  const Target* target = FindTarget(manifest.target);
  const bool was_plain = linear.scheme().code == CodeType::kBF16;
  if (was_plain || (target != nullptr && target->HoldsNoCodes())) return "";
  if (record.scheme.code == CodeType::kBF16) {
    return fmt::format("its weights were dequantized; the checkpoint has {}",
                       DescribeScheme(linear.scheme()));
  }
  // A checkpoint says what its source says.
  const Layout* layout = FindLayout(record.layout);
  const std::optional<ActivationScheme> asked =
      layout != nullptr && layout->checkpoint
          ? std::optional(linear.scheme().activations)
          : ActivationsFor(linear.scheme(), WantedScheme::kAuto);
  if (!asked || *asked == record.scheme.activations) return "";
  return fmt::format("it was packed for {}; the checkpoint asks for {}",
                     NameOf(record.scheme.activations), NameOf(*asked));
}

}  // namespace

void JudgeDecisions(const Manifest& manifest, const Checkpoint& source, const QuantizedModel& model,
                    bool strict, LevelResult& result) {
  const auto add = [&](const std::string& module, std::string where, std::string message) {
    if (strict) result.state = LevelState::kFailed;
    (strict ? result.problems : result.notes)
        .push_back({module, std::move(where), std::move(message)});
  };
  const DType asked = DTypeOfConfig(source.config()).value_or(DType::kBF16);
  if (manifest.activation_dtype != asked) {
    add("", "activations",
        fmt::format("the folder was packed for {}; the checkpoint says {}",
                    DTypeName(manifest.activation_dtype), DTypeName(asked)));
  }
  for (const auto& [name, record] : manifest.modules) {
    const QuantizedLinear* linear = model.Find(name);
    std::string decision = linear == nullptr ? "" : DecisionOf(manifest, *linear, record);
    if (!decision.empty()) add(name, "module " + name, std::move(decision));
  }
}

}  // namespace prepack
