#ifndef PREPACK_LAYOUTS_SCALE_CONVERT_H_
#define PREPACK_LAYOUTS_SCALE_CONVERT_H_

// Scales in the 16-bit dtypes of kernels, stored transposed: [G, N] in the file, [rows, G] in the
// canonical layout. Shared by all layouts that store them so.

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"

namespace prepack {

// `scale` as dtype (BF16 or F16) holds it: rounded to nearest, ties to even. F32 is left alone.
float RoundScale(DType dtype, float scale);

// packed[g, r] = scales[r, g] in `dtype` (BF16 or F16). A scale that becomes infinite, or zero
// without being zero, is kUnsupported, with its place (r, g) and its value: the packed weights
// would not be the model's.
Status PackTransposedScales(DType dtype, uint64_t rows, uint64_t groups,
                            std::span<const float> scales, std::span<std::byte> packed);
// The inverse, widened to f32.
void UnpackTransposedScales(DType dtype, uint64_t rows, uint64_t groups,
                            std::span<const std::byte> packed, std::span<float> scales);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_SCALE_CONVERT_H_
