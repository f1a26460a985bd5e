#pragma once

// Which types of ggml hold the modules of a model. Q2_K to Q6_K are for those that they hold
// exactly; whether they do is in the scales, which are read where such a type would be smaller.

#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/convert/gguf/options.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/gguf/ggml_types.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::gguf {

struct HoldingTypes {
  std::vector<GgmlType> types;  // the smallest first
  // Why the smallest type that has its codes is not among them, as a sentence; empty: it is. If
  // there are none, why not, for the type that comes nearest.
  std::string why;
};

// Does a type hold such a module, whatever the scales of superblocks may be?
bool HoldsModule(GgmlType type, const QuantizedLinear& linear);

// Reads the scales where it must. kMalformed for scales that are no numbers.
Result<HoldingTypes> TypesThatHold(const QuantizedLinear& linear, bool exact);

// What may have to be rounded, or is quantized, when the module is stored as that type: "scales",
// "minima", "weights", "quantized"; nothing: all is stored as it is.
std::vector<std::string_view> WhatRounds(GgmlType type, const QuantizedLinear& linear);

// Sets the types of all sources, and the modules that none holds. kUnsupported if there are some
// and the options have no fallback.
Status ChooseTypes(const PlanOptions& options, Sources& sources);

}  // namespace prepack::gguf
