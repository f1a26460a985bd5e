#ifndef PREPACK_GEMM_INTEGER_MODEL_H_
#define PREPACK_GEMM_INTEGER_MODEL_H_

// The part that is common to kernels that multiply 8-bit activations: they sum exactly in int32 and
// scale the sums afterwards.

#include <cstdint>
#include <span>
#include <vector>

#include "gemm/activation_quantizers.h"
#include "gemm/strip_model.h"

namespace prepack {

class IntegerModel : public StripModel<int16_t, int32_t> {
 public:
  IntegerModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x,
               uint64_t segment);

  std::vector<double> Activations() const final;

 protected:
  const std::vector<float>& token_scales() const { return token_scales_; }  // [M]
  const std::vector<int64_t>& token_zeros() const { return token_zeros_; }  // [M]
  // Of scales stored [G, N]: the one of input channel k and output channel n.
  double GroupScale(uint64_t n, uint64_t k) const;
  // Fold for segments that are groups with such scales: adds (sum · token scale) · group scale, and
  // the bias in the end.
  void FoldGroup(const ModelPiece& group, const int32_t* sums, float* results) const;

 private:
  std::vector<float> token_scales_;
  std::vector<int64_t> token_zeros_;
};

// Kernels with one scale per output channel.
class ChannelModel : public IntegerModel {
 public:
  ChannelModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x);

 protected:
  double WeightFactor(uint64_t n, uint64_t /*k*/) const final;

 private:
  // y[m, n], before it is rounded, from the sum over all input channels.
  virtual float Finish(uint64_t m, uint64_t n, int32_t sum) const = 0;

  void Fold(const ModelPiece& segment, const int32_t* sums, float* results) const final;
};

// A byte that is read as two's complement.
constexpr int16_t Widened(int8_t value) {
  return static_cast<int16_t>(static_cast<int>(value));
}

// Decodes signed bytes that lie in fours of input channels: value (i, j) of the piece at
// j / 4 * stride + 4 * i + j % 4. The last four must be whole.
void DecodeQuads(const std::byte* bytes, uint64_t stride, const ModelPiece& piece, int16_t* w);

// Decodes signed bytes [N, K].
void DecodeRowsOfBytes(const PackedOperands& packed, const ModelPiece& piece, int16_t* w);

// a + b in the int32 arithmetic of the kernels, which wraps.
constexpr int32_t WrappingAdd(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
constexpr int32_t WrappingMul(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}

}  // namespace prepack

#endif  // PREPACK_GEMM_INTEGER_MODEL_H_
