#ifndef PREPACK_LAYOUTS_WEIGHT_SUMS_H_
#define PREPACK_LAYOUTS_WEIGHT_SUMS_H_

// What kernels need when activations have zero points: y = s_a · (q · w) − s_a · z_a · Σ_k w, where
// the last factor is known beforehand. vLLM calls it azp_adj.

#include <cstdint>
#include <span>
#include <vector>

#include "base/isa.h"
#include "base/page_buffer.h"
#include "canonical/quantized_linear.h"

namespace prepack {

// sums[r] = Σ_k code(n0 + r, k) of signed 8-bit codes. `panel` is scratch memory.
Status SumSignedCodes(const QuantizedLinear& linear, Isa isa, uint64_t n0, uint64_t rows,
                      PageBuffer& panel, std::span<int32_t> sums);

// f32(sum) · scale per row, rounded once; scales [rows] are first rounded to `scale_value`.
void PackScaledSums(DType scale_value, std::span<const int32_t> sums, std::span<const float> scales,
                    std::span<std::byte> packed);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_WEIGHT_SUMS_H_
