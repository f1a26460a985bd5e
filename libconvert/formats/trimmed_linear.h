#ifndef PREPACK_FORMATS_TRIMMED_LINEAR_H_
#define PREPACK_FORMATS_TRIMMED_LINEAR_H_

// A module that was stored with input channels that the model does not have: AutoRound's
// calibration-free export pads K to whole groups. The extra ones are dropped.

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "canonical/quantized_linear.h"

namespace prepack {

// `k` is even, below padded->k() and in its last group; `padded` has no k_order. Reading a panel
// that ends at k checks that what is dropped are zeros (codes that equal the zero point); anything
// else is kMalformed.
std::unique_ptr<QuantizedLinear> TrimInputs(std::unique_ptr<QuantizedLinear> padded, uint64_t k);

}  // namespace prepack

#endif  // PREPACK_FORMATS_TRIMMED_LINEAR_H_
