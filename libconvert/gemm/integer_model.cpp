#include "gemm/integer_model.h"

#include <utility>

#include "gemm/model_operands.h"

namespace prepack {
namespace {

// What zero became in each row. Any number would do; this is the one that makes rows sparse.
std::vector<int16_t> BaseOf(const QuantizedRows& x) {
  constexpr int64_t kLimit = 512;
  std::vector<int16_t> base(x.zero_points.size());
  for (size_t m = 0; m < base.size(); ++m) {
    const int64_t zero = x.zero_points[m];
    if (zero > -kLimit && zero < kLimit) base[m] = static_cast<int16_t>(zero);
  }
  return base;
}

}  // namespace

IntegerModel::IntegerModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x,
                           uint64_t segment)
    : StripModel(packed, input, std::move(x.values), BaseOf(x), segment),
      token_scales_(std::move(x.scales)),
      token_zeros_(std::move(x.zero_points)) {}

double IntegerModel::GroupScale(uint64_t n, uint64_t k) const {
  return static_cast<double>(scales()[k / packed().group_size * packed().n + n]);
}

void IntegerModel::FoldGroup(const ModelPiece& group, const int32_t* sums, float* results) const {
  const float* scale = &scales()[group.k0 / packed().group_size * packed().n + group.n0];
  const bool last = group.k0 + group.inputs == k();
  for (uint64_t row = 0; row < m(); ++row) {
    const float token_scale = token_scales_[row];
    const int32_t* from = sums + row * kModelBlock;
    float* to = results + row * kModelBlock;
    for (uint64_t i = 0; i < group.rows; ++i) {
      const float scaled = static_cast<float>(from[i]) * token_scale;
      to[i] += scaled * scale[i];
    }
    for (uint64_t i = 0; last && i < group.rows; ++i) to[i] += Bias(group.n0 + i);
  }
}

std::vector<double> IntegerModel::Activations() const {
  std::vector<double> x(values().size());
  for (uint64_t i = 0; i < x.size(); ++i) {
    const uint64_t row = i / columns();
    x[i] = static_cast<double>(values()[i] - token_zeros_[row]) *
           static_cast<double>(token_scales_[row]);
  }
  return x;
}

ChannelModel::ChannelModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x)
    : IntegerModel(packed, input, std::move(x), packed.k) {}

double ChannelModel::WeightFactor(uint64_t n, uint64_t /*k*/) const {
  return static_cast<double>(scales()[n]);
}

void ChannelModel::Fold(const ModelPiece& segment, const int32_t* sums, float* results) const {
  for (uint64_t row = 0; row < m(); ++row) {
    for (uint64_t i = 0; i < segment.rows; ++i) {
      const uint64_t at = row * kModelBlock + i;
      results[at] = Finish(row, segment.n0 + i, sums[at]);
    }
  }
}

void DecodeQuads(const std::byte* bytes, uint64_t stride, const ModelPiece& piece, int16_t* w) {
  constexpr uint64_t kPairs = 2 * kStripChannels;  // of two input channels
  for (uint64_t j = 0; j < piece.inputs; j += 4) {
    const auto* quads = reinterpret_cast<const int8_t*>(bytes + j / 4 * stride);
    int16_t* first = w + j / 2 * kPairs;
    for (uint64_t i = 0; i < piece.rows; ++i) {
      first[2 * i] = Widened(quads[4 * i]);
      first[2 * i + 1] = Widened(quads[4 * i + 1]);
      first[kPairs + 2 * i] = Widened(quads[4 * i + 2]);
      first[kPairs + 2 * i + 1] = Widened(quads[4 * i + 3]);
    }
  }
}

void DecodeRowsOfBytes(const PackedOperands& packed, const ModelPiece& piece, int16_t* w) {
  for (uint64_t i = 0; i < piece.rows; ++i) {
    const auto* row = reinterpret_cast<const int8_t*>(packed.weight.data()) +
                      (piece.n0 + i) * packed.k + piece.k0;
    uint64_t j = 0;
    for (; j + 2 <= piece.inputs; j += 2) {
      int16_t* pair = w + j * kStripChannels + 2 * i;
      pair[0] = Widened(row[j]);
      pair[1] = Widened(row[j + 1]);
    }
    if (j < piece.inputs) w[j * kStripChannels + 2 * i] = Widened(row[j]);
  }
}

}  // namespace prepack
