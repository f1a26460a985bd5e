#ifndef PREPACK_CHECK_PLAIN_VALUES_H_
#define PREPACK_CHECK_PLAIN_VALUES_H_

// NaN and infinity in what is not quantized: norms, biases, embeddings, heads, routers. Exports of
// overflown models have them, and loaders do not look.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/progress.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"

namespace prepack {

// The dtypes that unquantized weights have: F16, BF16, F32 and F64.
bool IsPlainFloat(DType dtype);

// How many of the values are NaN or infinite. `bytes` holds whole values of such a dtype.
uint64_t CountNotFinite(DType dtype, std::span<const std::byte> bytes);

// Reads every floating-point tensor that is no part of a quantized module, a piece at a time, and
// appends one finding for each that has such values. Masks are left out: infinity is what they are
// made of. Errors are those of reading.
Status CheckPlainValues(const Checkpoint& checkpoint, const QuantizedModel& model, unsigned threads,
                        Progress& progress, std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_PLAIN_VALUES_H_
