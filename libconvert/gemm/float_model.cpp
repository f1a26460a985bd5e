#include "gemm/float_model.h"

#include <algorithm>
#include <utility>

#include "gemm/model_operands.h"

namespace prepack {

FloatModel::FloatModel(const PackedOperands& packed, const ModelInput& input, std::vector<float> x)
    : packed_(packed),
      m_(input.m),
      dtype_(input.dtype),
      x_(std::move(x)),
      scales_(LoadFloats(packed.scale_dtype, packed.scale)),
      bias_(LoadFloats(packed.bias_dtype, packed.bias)) {}

float FloatModel::Bias(uint64_t n) const {
  return BiasOf(bias_, n);
}

void FloatModel::AddProducts(uint64_t m, uint64_t begin, uint64_t end, const float* w,
                             Sums& sums) const {
  const float* x = x_.data() + m * packed_.k;
  Sums local = sums;
  for (uint64_t k = begin; k < end; ++k) {
    for (uint64_t i = 0; i < kBlock; ++i) local[i] += x[k] * w[k * kBlock + i];
  }
  sums = local;
}

FloatModel::Sums FloatModel::MultiplyRow(uint64_t m, uint64_t n0, uint64_t rows,
                                         const float* w) const {
  Sums sums{};
  AddProducts(m, 0, packed_.k, w, sums);
  for (uint64_t i = 0; i < rows; ++i) sums[i] += Bias(n0 + i);
  return sums;
}

Status FloatModel::Run(uint64_t n0, std::span<float> y) const {
  Status status = CheckOutput(y, m_, n0, packed_.n);
  if (!status.ok()) return status;
  const uint64_t width = y.size() / m_;
  std::vector<float> w(packed_.k * kBlock);
  for (uint64_t first = 0; first < width; first += kBlock) {
    const uint64_t rows = std::min(kBlock, width - first);
    std::ranges::fill(w, 0.0F);
    DecodeBlock(n0 + first, rows, w.data());
    for (uint64_t m = 0; m < m_; ++m) {
      const Sums sums = MultiplyRow(m, n0 + first, rows, w.data());
      for (uint64_t i = 0; i < rows; ++i)
        y[m * width + first + i] = RoundByInstruction(dtype_, sums[i]);
    }
  }
  return {};
}

void FloatModel::Weights(uint64_t n0, std::span<double> w) const {
  const uint64_t end = n0 + w.size() / packed_.k;
  std::vector<float> decoded(packed_.k * kBlock);
  for (uint64_t block = n0 / kBlock * kBlock; block < end; block += kBlock) {
    const uint64_t rows = std::min(kBlock, packed_.n - block);
    DecodeBlock(block, rows, decoded.data());
    for (uint64_t n = std::max(n0, block); n < std::min(end, block + rows); ++n) {
      for (uint64_t k = 0; k < packed_.k; ++k) {
        w[(n - n0) * packed_.k + k] = decoded[k * kBlock + n - block] * WeightFactor(n, k);
      }
    }
  }
}

}  // namespace prepack
