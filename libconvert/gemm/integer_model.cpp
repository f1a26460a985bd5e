#include "gemm/integer_model.h"

#include <algorithm>
#include <utility>

#include "gemm/model_operands.h"

namespace prepack {
namespace {

// Output channels that are decoded at a time: few enough to stay in the cache, enough to use whole
// cache lines of weights that are stored by input channel.
constexpr uint64_t kBlock = 32;

// The sum of at most kChunk products, which int32 can hold: values are below 2^8 + 1 in magnitude.
constexpr uint64_t kChunk = uint64_t{1} << 14;

int32_t ChunkSum(const int16_t* x, const int16_t* w, uint64_t count) {
  int32_t sum = 0;
  for (uint64_t k = 0; k < count; ++k) sum += x[k] * w[k];
  return sum;
}

int32_t Sum(const int16_t* x, const int16_t* w, uint64_t count) {
  int32_t sum = 0;
  for (uint64_t k = 0; k < count; k += kChunk) {
    sum = WrappingAdd(sum, ChunkSum(x + k, w + k, std::min(kChunk, count - k)));
  }
  return sum;
}

}  // namespace

IntegerModel::IntegerModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x,
                           uint64_t segment)
    : packed_(packed),
      m_(input.m),
      dtype_(input.dtype),
      x_(std::move(x)),
      segment_(segment),
      scales_(LoadFloats(packed.scale_dtype, packed.scale)),
      bias_(LoadFloats(packed.bias_dtype, packed.bias)) {}

float IntegerModel::Bias(uint64_t n) const {
  return BiasOf(bias_, n);
}

double IntegerModel::GroupScale(uint64_t n, uint64_t k) const {
  return scales_[k / packed_.group_size * packed_.n + n];
}

float IntegerModel::SumScaledGroups(uint64_t m, uint64_t n, std::span<const int32_t> sums) const {
  float result = 0;
  for (uint64_t group = 0; group < sums.size(); ++group) {
    const float scaled = static_cast<float>(sums[group]) * x_.scales[m];
    result += scaled * scales_[group * packed_.n + n];
  }
  return result + Bias(n);
}

float IntegerModel::Round(DType dtype, float value) const {
  return RoundByInstruction(dtype, value);
}

Status IntegerModel::Run(uint64_t n0, std::span<float> y) const {
  Status status = CheckOutput(y, m_, n0, packed_.n);
  if (!status.ok()) return status;
  const uint64_t width = y.size() / m_;
  std::vector<int16_t> weights(kBlock * packed_.k);
  std::vector<int32_t> sums(packed_.k / segment_);
  for (uint64_t first = 0; first < width; first += kBlock) {
    const uint64_t rows = std::min(kBlock, width - first);
    DecodeRows(n0 + first, rows, weights.data());
    for (uint64_t m = 0; m < m_; ++m) {
      const int16_t* x = x_.values.data() + m * packed_.k;
      for (uint64_t row = 0; row < rows; ++row) {
        const int16_t* w = weights.data() + row * packed_.k;
        for (uint64_t i = 0; i < sums.size(); ++i) {
          sums[i] = Sum(x + i * segment_, w + i * segment_, segment_);
        }
        y[m * width + first + row] = Round(dtype_, Finish(m, n0 + first + row, sums));
      }
    }
  }
  return {};
}

std::vector<double> IntegerModel::Activations() const {
  std::vector<double> x(x_.values.size());
  for (uint64_t i = 0; i < x.size(); ++i) {
    const uint64_t m = i / packed_.k;
    x[i] = static_cast<double>(x_.values[i] - x_.zero_points[m]) * x_.scales[m];
  }
  return x;
}

void IntegerModel::Weights(uint64_t n0, std::span<double> w) const {
  const uint64_t rows = w.size() / packed_.k;
  std::vector<int16_t> decoded(w.size());
  DecodeRows(n0, rows, decoded.data());
  for (uint64_t i = 0; i < decoded.size(); ++i) {
    w[i] = decoded[i] * WeightScale(n0 + i / packed_.k, i % packed_.k);
  }
}

}  // namespace prepack
