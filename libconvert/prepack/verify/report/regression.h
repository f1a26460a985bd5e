#ifndef PREPACK_VERIFY_REPORT_REGRESSION_H_
#define PREPACK_VERIFY_REPORT_REGRESSION_H_

// Is a report worse than an earlier one? Bars say what is bad for any model; an earlier report says
// what this model had.
//
// Compared are, by module: the state of each level; the kernel, end-to-end and worst-channel SQNR
// by input (of the same name and number of rows); the agreement with the same second
// implementation; the weight and output SQNR. A regression is
//   - a figure that fell by more than the tolerance, or proves nothing any more; no error at all
//     (infinite) is above every number,
//   - a figure, a level or a module that was there and is not now, unless the module is not in the
//     sample,
//   - a level that passed, of the folder or of a module, and does not now.
// Modules that are new, or now have another layout, shape, target or implementation of the product,
// are noted. Figures for other activations (bf16 then, int8 now) say nothing about each other: that
// is noted, too. Activations that the machine only multiplied in f32, "f32 (bf16 values)", are the
// same as bf16.
//
// When no figure was compared and nothing failed, the comparison did not run.

#include "prepack/verify/report/report.h"

namespace prepack {

inline constexpr double kDefaultToleranceDb = 0.5;

// Fills `now.regression`, as asked for. `tolerance_db` ≥ 0.
void CompareWithEarlier(const VerifyReport& earlier, double tolerance_db, VerifyReport& now);

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_REGRESSION_H_
