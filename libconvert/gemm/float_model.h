#ifndef PREPACK_GEMM_FLOAT_MODEL_H_
#define PREPACK_GEMM_FLOAT_MODEL_H_

// The part that is common to kernels that multiply floats: they decode a block of output channels
// and sum in f32.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gemm/kernel_model.h"

namespace prepack {

class FloatModel : public KernelModel {
 public:
  // `x` as the kernel multiplies it.
  FloatModel(const PackedOperands& packed, const ModelInput& input, std::vector<float> x);

  Status Run(uint64_t n0, std::span<float> y) const final;
  std::vector<double> Activations() const override { return {x_.begin(), x_.end()}; }
  void Weights(uint64_t n0, std::span<double> w) const final;

 protected:
  // Output channels that are decoded and summed side by side. Each keeps a sum of its own; the
  // compiler turns them into vectors of whatever width it may use.
  static constexpr uint64_t kBlock = 16;
  using Sums = std::array<float, kBlock>;

  // Decodes output channels [n0, n0 + rows) into columns of w [K, kBlock]; n0 is a multiple of
  // kBlock, rows at most kBlock. Columns from `rows` on hold zeros.
  virtual void DecodeBlock(uint64_t n0, uint64_t rows, float* w) const = 0;
  // Row m of y for those channels, before it is rounded. Here: one sum over all k, then the bias.
  virtual Sums MultiplyRow(uint64_t m, uint64_t n0, uint64_t rows, const float* w) const;
  // By what MultiplyRow multiplies the products of input channel k with output channel n.
  virtual double WeightFactor(uint64_t /*n*/, uint64_t /*k*/) const { return 1; }

  // Adds x[m, k] * w[k, :] to `sums` for k in [begin, end), ascending.
  void AddProducts(uint64_t m, uint64_t begin, uint64_t end, const float* w, Sums& sums) const;

  uint64_t m() const { return m_; }
  uint64_t n() const { return packed_.n; }
  uint64_t k() const { return packed_.k; }
  const PackedOperands& packed() const { return packed_; }
  DType dtype() const { return dtype_; }
  const std::vector<float>& scales() const { return scales_; }  // in stored order
  float Bias(uint64_t n) const;

 private:
  PackedOperands packed_;
  uint64_t m_;
  DType dtype_;
  std::vector<float> x_;
  std::vector<float> scales_;
  std::vector<float> bias_;
};

}  // namespace prepack

#endif  // PREPACK_GEMM_FLOAT_MODEL_H_
