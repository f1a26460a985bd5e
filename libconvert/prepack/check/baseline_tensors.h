#ifndef PREPACK_CHECK_BASELINE_TENSORS_H_
#define PREPACK_CHECK_BASELINE_TENSORS_H_

#include <vector>

#include "prepack/base/progress.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"

namespace prepack {

// A tensor that is not quantized has the values of the baseline's tensor of that name, up to the
// rounding of the coarser dtype: relative differences up to 2^-7 are taken for that.
inline constexpr double kTensorTolerance = 0x1p-7;

// Compares every floating-point tensor that is no part of a quantized module, and every tensor that
// the baseline has besides: what is in one only is "baseline-missing", other shapes are
// "baseline-shape", other values "baseline-tensor-differs". Reads a piece at a time. Errors are
// those of reading.
Status CompareOtherTensors(const Checkpoint& checkpoint, const QuantizedModel& model,
                           const Checkpoint& baseline, unsigned threads, Progress& progress,
                           std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_BASELINE_TENSORS_H_
