#ifndef PREPACK_CANONICAL_DEQUANTIZED_LINEAR_H_
#define PREPACK_CANONICAL_DEQUANTIZED_LINEAR_H_

// A quantized module seen as its weights in bf16: what becomes of a module that no kernel of the
// target reads, so that layouts for unquantized weights take it.

#include <memory>

#include "canonical/quantized_linear.h"

namespace prepack {

// The scheme of a module of n by k weights that was dequantized: one piece, no scale.
Scheme DequantizedScheme(uint64_t n, uint64_t k);

// Codes are the weights, (code − zero point) · scale, rounded to f32 and then to bf16, nearest
// even, in the order of the checkpoint's input channels: there is no k_order any more. Scales read
// as 1, zero points as 0. Whole rows are dequantized for every panel, so it asks for narrow strips
// (wide_rows is 1) whatever the source does. A weight that bf16 cannot hold (it would be infinite)
// is kUnsupported. `source` must outlive the result.
std::unique_ptr<QuantizedLinear> Dequantized(const QuantizedLinear& source);

}  // namespace prepack

#endif  // PREPACK_CANONICAL_DEQUANTIZED_LINEAR_H_
