#pragma once

// How far the products of packed modules are from those of the source's weights, end to end: what
// `prepack verify` computes, by the same code.

#include <span>

#include "prepack/base/status.h"
#include "prepack/packed/folder.h"
#include "prepack/tune/report.h"
#include "prepack/verify/module_products.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// Of a module: with recorded activations if there are any for it, else with Gaussian ones. The
// errors of MultiplyModule; kUnsupported, too, if the products prove nothing.
Result<SampledModule> MeasureAccuracy(const PackedModule& module, const SecondDecoder& source,
                                      const ProductOptions& options);

// The mean of a sample: noise over signal is averaged.
double MeanDecibelOf(std::span<const SampledModule> modules);

}  // namespace prepack
