#ifndef PREPACK_VERIFY_MODULE_JUDGEMENT_H_
#define PREPACK_VERIFY_MODULE_JUDGEMENT_H_

// What the figures of one module's products say.

#include <optional>

#include "base/status.h"
#include "convert/manifest.h"
#include "verify/report.h"

namespace prepack {

struct ModuleBars {
  double kernel_db = 0;
  bool rounded_twice = false;         // the output, see sqnr_bars.h
  bool cancels = false;               // zero points of activations, out of sums in floating point
  double end_to_end_db = 0;           // on Gaussian activations
  std::optional<double> recorded_db;  // on recorded ones; none: reported only
};

// Judges module.gemm, and sets its bars and the state of the level.
void JudgeProducts(const ModuleBars& bars, ModuleVerification& module, LevelResult& result);

// What oneDNN said of the form of the weights: not OK when it wants another one here. A note, but
// where the folder was packed for oneDNN on one machine (--onednn-form native) and this is not it,
// the level did not run.
void JudgeForm(const Status& form, const ModuleRecord& record, ModuleVerification& module,
               LevelResult& result);

}  // namespace prepack

#endif  // PREPACK_VERIFY_MODULE_JUDGEMENT_H_
