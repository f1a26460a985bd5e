#ifndef PREPACK_GEMM_INTEGER_MODEL_H_
#define PREPACK_GEMM_INTEGER_MODEL_H_

// The part that is common to kernels that multiply 8-bit activations: they sum exactly in int32 and
// scale the sums afterwards.

#include <cstdint>
#include <span>
#include <vector>

#include "gemm/activation_quantizers.h"
#include "gemm/kernel_model.h"

namespace prepack {

class IntegerModel : public KernelModel {
 public:
  // `segment`: input channels that the kernel sums before it scales; divides K.
  IntegerModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x,
               uint64_t segment);

  Status Run(uint64_t n0, std::span<float> y) const final;
  std::vector<double> Activations() const final;
  void Weights(uint64_t n0, std::span<double> w) const final;

 protected:
  // Decodes output channels [n0, n0 + rows) into w [rows, K], zero points subtracted.
  virtual void DecodeRows(uint64_t n0, uint64_t rows, int16_t* w) const = 0;
  // y[m, n], before it is rounded, from the sum of the products of each segment.
  virtual float Finish(uint64_t m, uint64_t n, std::span<const int32_t> sums) const = 0;
  // To the type of the output; here by the instruction, see RoundByInstruction.
  virtual float Round(DType dtype, float value) const;
  // By what Finish multiplies the products of input channel k with output channel n.
  virtual double WeightScale(uint64_t n, uint64_t k) const = 0;

  uint64_t n() const { return packed_.n; }
  uint64_t k() const { return packed_.k; }
  uint64_t segment() const { return segment_; }
  const PackedOperands& packed() const { return packed_; }
  const QuantizedRows& x() const { return x_; }
  const std::vector<float>& scales() const { return scales_; }  // in stored order
  bool has_bias() const { return !bias_.empty(); }
  float Bias(uint64_t n) const;
  // Of scales stored [G, N]: the one of input channel k and output channel n.
  double GroupScale(uint64_t n, uint64_t k) const;
  // The sum over groups, ascending, of (sum · token scale) · group scale; then the bias.
  float SumScaledGroups(uint64_t m, uint64_t n, std::span<const int32_t> sums) const;

 private:
  PackedOperands packed_;
  uint64_t m_;
  DType dtype_;
  QuantizedRows x_;
  uint64_t segment_;
  std::vector<float> scales_;
  std::vector<float> bias_;
};

// a + b in the int32 arithmetic of the kernels, which wraps.
constexpr int32_t WrappingAdd(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
constexpr int32_t WrappingMul(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}

}  // namespace prepack

#endif  // PREPACK_GEMM_INTEGER_MODEL_H_
