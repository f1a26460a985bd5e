#pragma once

#include <span>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/plan.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/small_parts.h"

namespace prepack {

// What the plan asks the layouts for, if the kernel computes so. Of the plan: the target, the dtype
// of activations, and mixture_faults. `biases`: of the module, see FindBiases. Errors come
// from reading the source.
Result<PackRequest> RequestFor(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                               std::span<const BiasPlace> biases, const Arithmetic& arithmetic,
                               const PlanOptions& options, const Plan& plan);

// The same for the dequantized module.
PackRequest InBf16(PackRequest request);

// "model.layers.3.mlp.experts" of one of its experts; empty for any other module.
std::string_view MixtureOf(std::string_view module);

}  // namespace prepack
