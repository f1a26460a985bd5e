// The products of ggml-cpu/quants.c and vec.cpp, in the order of their portable code.

#include "prepack/gemm/model_ggml.h"

#include <array>

namespace prepack {
namespace {

using enum gguf::GgmlType;

constexpr uint64_t kInnerGroup = 16;  // weights that share an inner scale
constexpr uint64_t kSumLanes = 8;     // that ggml adds up apart, for some types

// Σ a·b of `count` codes. No block reaches 2^31.
template <uint64_t kCount>
int32_t SumOfProducts(const int16_t* a, const int16_t* b) {
  int32_t sum = 0;
  for (uint64_t i = 0; i < kCount; ++i) sum += static_cast<int32_t>(a[i]) * b[i];
  return sum;
}

}  // namespace

std::optional<GgmlOperand> GgmlOperandOf(gguf::GgmlType type) {
  switch (type) {
    case kF32:
      return GgmlOperand::kF32;
    case kF16:
      return GgmlOperand::kF16;
    case kBF16:
      return GgmlOperand::kBF16;
    case kQ4_0:
    case kQ5_0:
    case kQ8_0:
    case kMXFP4:
    case kNVFP4:
      return GgmlOperand::kQ8_0;
    case kQ4_1:
    case kQ5_1:
      return GgmlOperand::kQ8_1;
    case kQ2_K:
    case kQ3_K:
    case kQ4_K:
    case kQ5_K:
    case kQ6_K:
      return GgmlOperand::kQ8_K;
    default:
      return std::nullopt;
  }
}

bool GgmlHasMinimum(gguf::GgmlType type) {
  return type == kQ4_1 || type == kQ5_1 || type == kQ2_K || type == kQ4_K || type == kQ5_K;
}

void GgmlWeights::Multiply(const GgmlActivations& x, std::span<float> y) const {
  for (uint64_t row = 0; row < rows_; ++row) {
    for (uint64_t m = 0; m < x.m(); ++m) y[m * rows_ + row] = Product(row, x, m);
  }
}

float GgmlWeights::Product(uint64_t row, const GgmlActivations& x, uint64_t m) const {
  switch (type_) {
    case kF32:
    case kF16:
    case kBF16: {
      const float* weights = &values_[row * k_];
      const float* numbers = x.values(m).data();
      double sum = 0;
      for (uint64_t i = 0; i < k_; ++i) sum += static_cast<double>(weights[i] * numbers[i]);
      return static_cast<float>(sum);
    }
    case kQ2_K:
      return SumOfQ2K(row, x, m);
    case kQ3_K:
    case kQ4_K:
    case kQ5_K:
    case kQ6_K:
      return SumOfLanes(row, x, m);
    default:
      return SumOfBlocks(row, x, m);
  }
}

// Types with a scale in f32 for every group: NVFP4 has groups of 16, all others of 32.
float GgmlWeights::SumOfBlocks(uint64_t row, const GgmlActivations& x, uint64_t m) const {
  const int16_t* codes = &codes_[row * k_];
  const float* scales = &scales_[row * (k_ / group_)];
  const float* minima = minima_.empty() ? nullptr : &minima_[row * (k_ / group_)];
  const int16_t* x_codes = x.codes(m).data();
  const float* x_scales = x.scales(m).data();
  const float* x_sums = x.sums(m).data();
  const uint64_t in_block = 32 / group_;
  float sum = 0;
  for (uint64_t group = 0; group < k_ / group_; ++group) {
    const uint64_t first = group * group_;
    const auto integers = static_cast<float>(
        group_ == kInnerGroup ? SumOfProducts<kInnerGroup>(codes + first, x_codes + first)
                              : SumOfProducts<32>(codes + first, x_codes + first));
    const float x_scale = x_scales[group / in_block];
    if (type_ == kQ4_0) {
      sum += integers * scales[group] * x_scale;
    } else if (minima != nullptr) {
      sum += scales[group] * x_scale * integers + minima[group] * x_sums[group];
    } else {
      sum += scales[group] * x_scale * integers;
    }
  }
  return sum;
}

// Σ of the integers of x in a block, each times the inner minimum of its weight.
int32_t GgmlWeights::ShiftOf(uint64_t row, uint64_t block, const int16_t* x_codes) const {
  int32_t shift = 0;
  for (uint64_t i = block * group_; i < (block + 1) * group_; ++i) {
    shift += inner_minima_[(row * k_ + i) / kInnerGroup] * x_codes[i];
  }
  return shift;
}

// Eight sums, of every eighth weight each.
float GgmlWeights::SumOfLanes(uint64_t row, const GgmlActivations& x, uint64_t m) const {
  const int16_t* codes = &codes_[row * k_];
  const int16_t* inner = &inner_scales_[row * (k_ / kInnerGroup)];
  const int16_t* x_codes = x.codes(m).data();
  std::array<float, kSumLanes> sums = {};
  float sum = 0;
  for (uint64_t block = 0; block < k_ / group_; ++block) {
    std::array<int32_t, kSumLanes> integers = {};
    for (uint64_t i = block * group_; i < (block + 1) * group_; i += kSumLanes) {
      const int32_t scale = inner[i / kInnerGroup];
      for (uint64_t lane = 0; lane < kSumLanes; ++lane) {
        integers[lane] += scale * codes[i + lane] * x_codes[i + lane];
      }
    }
    const float scale = scales_[row * (k_ / group_) + block] * x.scales(m)[block];
    for (uint64_t lane = 0; lane < kSumLanes; ++lane) {
      sums[lane] += scale * static_cast<float>(integers[lane]);
    }
    if (minima_.empty()) continue;
    sum += minima_[row * (k_ / group_) + block] * x.scales(m)[block] *
           static_cast<float>(ShiftOf(row, block, x_codes));
  }
  for (const float lane : sums) sum += lane;
  return sum;
}

float GgmlWeights::SumOfQ2K(uint64_t row, const GgmlActivations& x, uint64_t m) const {
  const int16_t* codes = &codes_[row * k_];
  const int16_t* x_codes = x.codes(m).data();
  float sum = 0;
  for (uint64_t block = 0; block < k_ / group_; ++block) {
    int32_t scaled = 0;
    for (uint64_t i = block * group_; i < (block + 1) * group_; i += kInnerGroup) {
      scaled += inner_scales_[(row * k_ + i) / kInnerGroup] *
                SumOfProducts<kInnerGroup>(codes + i, x_codes + i);
    }
    const uint64_t at = row * (k_ / group_) + block;
    const float x_scale = x.scales(m)[block];
    sum += x_scale * scales_[at] * static_cast<float>(scaled) +
           x_scale * minima_[at] * static_cast<float>(ShiftOf(row, block, x_codes));
  }
  return sum;
}

}  // namespace prepack
