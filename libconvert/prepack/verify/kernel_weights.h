#ifndef PREPACK_VERIFY_KERNEL_WEIGHTS_H_
#define PREPACK_VERIFY_KERNEL_WEIGHTS_H_

// How a kernel rounds the source's weights before it multiplies them: the first half of the truth
// that its output is compared with. It is computed from decoded source tensors, never from packed
// bytes.

#include <optional>
#include <span>

#include "prepack/layouts/layout.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// How a kernel brings step · scale (the scale rounded as the layout stores it) to an operand.
enum class WeightRounding : uint8_t {
  kNone,          // sums of steps are multiplied by the scale, never the weights
  kToF32,         // the product in f32
  kToBF16,        // and then in bf16; what is below 2^-126 becomes zero
  kToActivation,  // the same, or in f16 when the activations are f16
  kFp8,           // as kNone, but every FP8 code is read as a normal number
  kFp8ToBF16,     // the same, and the product in bf16
  kDequantized,   // packed as bf16, nearest even
};

// What the kernel of the layout does with such a module; none for a layout that no kernel is known
// of.
std::optional<WeightRounding> WeightRoundingOf(const Layout& layout, const PackRequest& request);

// The operands of decoded weights, and the weights themselves, in f64. The spans have one element
// per weight.
void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<double> operands);
// The same, rounded to f32 in the end.
void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<float> operands);
void FillExactWeights(const DecodedRows& decoded, std::span<double> weights);

}  // namespace prepack

#endif  // PREPACK_VERIFY_KERNEL_WEIGHTS_H_
