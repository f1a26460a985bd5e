#pragma once

// What a user should know of a CPU before serving what a plan makes: from what kernels need, and
// from no measurement.

#include <string>

#include "prepack/base/cpu_features.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/plan.h"
#include "prepack/formats/format.h"

namespace prepack {

// A sentence, if the arithmetic that the checkpoint itself asks for has no kernel on the CPU, or
// only a reference implementation, and another scheme has one; or if another uses an instruction
// for 8-bit integers that this one leaves idle. Empty: there is nothing to say, the user has chosen
// the schemes, or `tune` could not measure the target.
std::string CpuHint(const Checkpoint& checkpoint, const QuantizedModel& model,
                    const PlanOptions& options, const CpuFeatures& features);

}  // namespace prepack
