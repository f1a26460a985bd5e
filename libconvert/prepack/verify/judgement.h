#pragma once

// The bar that a product must reach, and what the levels say of themselves.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/formats/format.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/manifest.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/verify.h"

namespace prepack {

// Why a level has not run, in the words of all reports.
inline constexpr std::string_view kNeedsSource =
    "this level needs the source checkpoint, which is not where the manifest says: give it with "
    "--source";
std::string SkippedOnRequest(Level level);

// The kernel figure, and the agreement of two implementations, are limited by the rounding of the
// output. To bf16 it leaves 52 dB and more, and 50 dB where it is rounded twice; 48 keeps a margin,
// and a kernel that truncates (46 dB) stays below. To f16 it leaves 73 dB. With f32 output what is
// left is the order of f32 sums: 140 dB for a few hundred input channels, 104 for tens of
// thousands.
inline constexpr double kMinKernelBF16Db = 48.0;
inline constexpr double kMinKernelF16Db = 65.0;
inline constexpr double kMinKernelF32Db = 95.0;
// What a kernel reaches that truncates to bf16 instead of rounding.
inline constexpr double kTruncatingKernelDb = 46.0;

// One channel of a kernel that rounds once is never worse than that: no bf16 number is further than
// 48.2 dB from what it was rounded from. Where the consumer rounds again, a channel may fall lower,
// and few rows tell little of it.
inline constexpr double kRoundedTwiceDb = 3.0;

// End to end, rounding Gaussian activations, scales and weights to bf16 leaves 50 dB and more;
// rounding activations to integers of 8 bits leaves 40, to FP8 31. Cutting their fractions off
// doubles the error, which costs 6.
inline constexpr double kMinEndToEndDb = 40.0;
inline constexpr double kMinEndToEndInt8Db = 35.0;
inline constexpr double kMinEndToEndFp8Db = 28.0;
inline constexpr double kCutFractionsDb = 6.0;

double KernelBar(DType output);
// On Gaussian activations.
double DefaultEndToEndBar(const ActivationScheme& activations, bool cuts_fractions = false);

// The --min-sqnr options together: the last one that speaks of a module decides.
class SqnrBars {
 public:
  // For the modules of these names. kUsage if a pattern is not a regular expression or matches
  // none of them.
  static Result<SqnrBars> Make(std::span<const SqnrBar> bars, std::span<const std::string> modules);

  // nullopt when no option speaks of the module.
  std::optional<double> Of(const std::string& module) const;

 private:
  std::map<std::string, double> decibel_;  // by module
};

// What the figures of one module's products say.

struct ModuleBars {
  double kernel_db = 0;
  bool rounded_twice = false;         // the output, see verify/judgement.h
  bool cancels = false;               // zero points of activations, out of sums in floating point
  bool rounds_zeros = false;          // weights that are zero may be a little else in the output
  double end_to_end_db = 0;           // on Gaussian activations
  std::optional<double> recorded_db;  // on recorded ones; none: reported only
};

// Judges module.gemm, and sets its bars and the state of the level.
void JudgeProducts(const ModuleBars& bars, ModuleVerification& module, LevelResult& result);

// If some modules were not judged, for that reason, the level has not run, unless it has failed.
void Conclude(std::span<const ModuleVerification* const> modules, Level level,
              std::string_view reason, LevelResult& result);

// What oneDNN said of the form of the weights: not OK when it wants another one here. A note, but
// where the folder was packed for oneDNN on one machine (--onednn-form native) and this is not it,
// the level did not run.
void JudgeForm(const Status& form, const ModuleRecord& record, ModuleVerification& module,
               LevelResult& result);

// What the comparison with the unquantized model says.

// Judges module.quality and sets the state of the level. `missing`: why there are no figures.
void JudgeQuality(const std::string& missing, ModuleVerification& module, LevelResult& result);

// Notes modules that are far below their peers (the same projection in other layers, packed alike),
// by weights or by outputs, and sets below_peers_db.
void NoteOutliers(const Manifest& manifest, ModuleFigures& modules, LevelResult& result);

// How the conversion overruled the source: with other activations, or dequantized weights. The
// folder is right by itself, and its bars are those of what it was made to be; so what it was made
// to be must be seen.

// Adds a note for each such decision; with `strict` a failure. The model is fused as the folder is.
void JudgeDecisions(const Manifest& manifest, const Checkpoint& source, const QuantizedModel& model,
                    bool strict, LevelResult& result);

}  // namespace prepack
