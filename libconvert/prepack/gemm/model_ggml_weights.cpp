// Where ggml's products find the codes and scales of a block (ggml-common.h, ggml-cpu/quants.c).

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/gemm/model_ggml.h"

namespace prepack {
namespace {

using enum gguf::GgmlType;

constexpr uint64_t kBlockOf32 = 32;
constexpr uint64_t kBlockOfK = 256;
constexpr uint64_t kGroupsOfK = 16;  // in such a block, of 16 weights each

uint16_t WordAt(const uint8_t* bytes) {
  uint16_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

float ScaleAt(const uint8_t* bytes) {
  return F16ToF32(WordAt(bytes));
}

int16_t SignedAt(const uint8_t* bytes) {
  return static_cast<int16_t>(bytes[0] < 128 ? bytes[0] : bytes[0] - 256);
}

// Twice the numbers of E2M1, with which scales of half their size are multiplied.
constexpr std::array<int16_t, 16> kTwiceE2M1 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};

// The nibble of weight i, where a run of `run` weights has its first half in the low nibbles.
uint32_t NibbleAt(const uint8_t* bytes, uint64_t i, uint64_t run) {
  const uint64_t half = run / 2;
  return i < half ? bytes[i] & 15U : bytes[i - half] >> 4U;
}

// Halves of numbers without sign: of 2^(bits - 127), and of E4M3, in which all bits set mean zero.
float HalvedExponent(uint8_t bits) {
  return std::ldexp(1.0F, bits - 128);
}

float HalvedE4M3(uint8_t bits) {
  constexpr int kBias = 7;
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  if ((bits & 0x7F) == 0 || bits == 0x7F) return 0;
  const int significand = exponent == 0 ? mantissa : 8 + mantissa;
  return std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - kBias - 3 - 1);
}

// The 16 scales of Q3_K, of 6 bits around 32: four low bits in eight bytes, then two high bits in
// four.
int16_t ScaleOfQ3K(const uint8_t* bytes, uint64_t i) {
  const uint32_t low = i < 8 ? bytes[i] & 15U : bytes[i - 8] >> 4U;
  const uint32_t high = bytes[8 + i % 4] >> (2 * (i / 4)) & 3U;
  return static_cast<int16_t>(static_cast<int>(low | high << 4U) - 32);
}

}  // namespace

GgmlWeights::GgmlWeights(gguf::GgmlType type) : type_(type) {
  switch (type) {
    case kQ2_K:
    case kQ3_K:
    case kQ4_K:
    case kQ5_K:
    case kQ6_K:
      group_ = kBlockOfK;
      break;
    case kNVFP4:
      group_ = 16;
      break;
    default:
      group_ = kBlockOf32;
  }
}

void GgmlWeights::Take(const std::byte* bytes, uint64_t stride, uint64_t rows, uint64_t k) {
  rows_ = rows;
  k_ = k;
  const gguf::GgmlTypeInfo& info = gguf::InfoOf(type_);
  if (info.block == 1) {
    values_.resize(rows * k);
    for (uint64_t row = 0; row < rows; ++row) TakeFloats(U8(bytes + row * stride), row * k, k);
    return;
  }
  codes_.resize(rows * k);
  scales_.resize(rows * k / group_);
  if (GgmlHasMinimum(type_)) minima_.resize(scales_.size());
  if (group_ == kBlockOfK) inner_scales_.resize(rows * k / kGroupsOfK);
  if (!minima_.empty()) inner_minima_.resize(inner_scales_.size());
  const uint64_t blocks = k / info.block;
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t block = 0; block < blocks; ++block) {
      TakeBlock(U8(bytes + row * stride + block * info.bytes), row * blocks + block);
    }
  }
}

void GgmlWeights::TakeFloats(const uint8_t* bytes, uint64_t first, uint64_t count) {
  float* to = &values_[first];
  if (type_ == kF32) {
    std::memcpy(to, bytes, count * sizeof(float));
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint16_t bits = WordAt(bytes + 2 * i);
    to[i] = type_ == kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }
}

void GgmlWeights::TakeBlock(const uint8_t* bytes, uint64_t block) {
  int16_t* codes = &codes_[block * gguf::InfoOf(type_).block];
  switch (type_) {
    case kNVFP4:
      for (uint64_t i = 0; i < 4; ++i) {
        scales_[block * 4 + i] = HalvedE4M3(bytes[i]);
        for (uint64_t j = 0; j < 16; ++j) {
          codes[16 * i + j] = kTwiceE2M1[NibbleAt(bytes + 4 + 8 * i, j, 16)];
        }
      }
      return;
    case kQ2_K:  // scales and minima in nibbles, codes in pairs of bits, and two numbers of f16
      scales_[block] = ScaleAt(bytes + 80);
      minima_[block] = -ScaleAt(bytes + 82);
      for (uint64_t i = 0; i < kGroupsOfK; ++i) {
        inner_scales_[block * kGroupsOfK + i] = static_cast<int16_t>(bytes[i] & 15U);
        inner_minima_[block * kGroupsOfK + i] = static_cast<int16_t>(bytes[i] >> 4U);
      }
      for (uint64_t i = 0; i < kBlockOfK; ++i) {
        const uint8_t four = bytes[16 + i / 128 * 32 + i % 32];
        codes[i] = static_cast<int16_t>(four >> (2 * (i % 128 / 32)) & 3U);
      }
      return;
    case kQ3_K:  // the third bit of a code, whose absence subtracts 4; two bits; scales; f16
      scales_[block] = ScaleAt(bytes + 108);
      for (uint64_t i = 0; i < kGroupsOfK; ++i) {
        inner_scales_[block * kGroupsOfK + i] = ScaleOfQ3K(bytes + 96, i);
      }
      for (uint64_t i = 0; i < kBlockOfK; ++i) {
        const uint8_t four = bytes[32 + i / 128 * 32 + i % 32];
        const bool third = (bytes[i % 32] >> (i / 32) & 1U) != 0;
        codes[i] = static_cast<int16_t>((four >> (2 * (i % 128 / 32)) & 3U) - (third ? 0 : 4));
      }
      return;
    case kQ4_K:  // two numbers of f16, scales and minima of 6 bits, and four bits
    case kQ5_K:  // the same, with fifth bits between
      TakeScalesOfK(bytes, block);
      for (uint64_t i = 0; i < kBlockOfK; ++i) {
        const uint8_t* low = bytes + (type_ == kQ4_K ? 16 : 48) + i / 64 * 32;
        const uint32_t fifth = type_ == kQ4_K ? 0U : bytes[16 + i % 32] >> (i / 32) & 1U;
        codes[i] = static_cast<int16_t>(NibbleAt(low, i % 64, 64) | fifth << 4U);
      }
      return;
    case kQ6_K:  // four bits, two bits, scales that are signed bytes, f16
      scales_[block] = ScaleAt(bytes + 208);
      for (uint64_t i = 0; i < kGroupsOfK; ++i) {
        inner_scales_[block * kGroupsOfK + i] = SignedAt(bytes + 192 + i);
      }
      for (uint64_t i = 0; i < kBlockOfK; ++i) {
        const uint32_t low = NibbleAt(bytes + i / 128 * 64, i % 128, 128);
        const uint32_t high = bytes[128 + i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3U;
        codes[i] = static_cast<int16_t>(static_cast<int>(low | high << 4U) - 32);
      }
      return;
    default:
      TakeSmallBlock(bytes, block);
  }
}

// Of Q4_K and Q5_K, for 32 weights each: of the first four all six bits in a byte, of the others
// four in a nibble, and two above those of the first.
void GgmlWeights::TakeScalesOfK(const uint8_t* bytes, uint64_t block) {
  scales_[block] = ScaleAt(bytes);
  minima_[block] = -ScaleAt(bytes + 2);
  const uint8_t* scales = bytes + 4;
  const uint8_t* minima = scales + 4;
  const uint8_t* nibbles = minima + 4;
  for (uint64_t i = 0; i < kGroupsOfK; ++i) {
    const uint64_t at = i / 2 % 4;
    const uint32_t first_scale = scales[at];
    const uint32_t first_minimum = minima[at];
    const uint32_t low = nibbles[at];
    const bool first = i < kGroupsOfK / 2;
    const uint32_t scale = first ? first_scale & 63U : (low & 15U) | first_scale >> 6U << 4U;
    const uint32_t minimum = first ? first_minimum & 63U : low >> 4U | first_minimum >> 6U << 4U;
    inner_scales_[block * kGroupsOfK + i] = static_cast<int16_t>(scale);
    inner_minima_[block * kGroupsOfK + i] = static_cast<int16_t>(minimum);
  }
}

// Blocks of 32 with one scale in front, and what else is before the codes.
void GgmlWeights::TakeSmallBlock(const uint8_t* bytes, uint64_t block) {
  int16_t* codes = &codes_[block * kBlockOf32];
  scales_[block] = type_ == kMXFP4 ? HalvedExponent(bytes[0]) : ScaleAt(bytes);
  if (!minima_.empty()) minima_[block] = ScaleAt(bytes + 2);
  const uint8_t* low = bytes + gguf::InfoOf(type_).bytes - kBlockOf32 / 2;
  const uint8_t* fifth = low - sizeof(uint32_t);
  switch (type_) {
    case kQ8_0:
      for (uint64_t i = 0; i < kBlockOf32; ++i) codes[i] = SignedAt(bytes + 2 + i);
      return;
    case kMXFP4:
      for (uint64_t i = 0; i < kBlockOf32; ++i) {
        codes[i] = kTwiceE2M1[NibbleAt(low, i, kBlockOf32)];
      }
      return;
    default:
      break;
  }
  const int16_t offset = type_ == kQ4_0 ? 8 : type_ == kQ5_0 ? 16 : 0;
  for (uint64_t i = 0; i < kBlockOf32 / 2; ++i) {
    codes[i] = static_cast<int16_t>((low[i] & 15) - offset);
    codes[kBlockOf32 / 2 + i] = static_cast<int16_t>((low[i] >> 4) - offset);
  }
  if (type_ != kQ5_0 && type_ != kQ5_1) return;
  for (uint64_t i = 0; i < kBlockOf32; ++i) {
    codes[i] = static_cast<int16_t>(codes[i] + (fifth[i / 8] >> (i % 8) & 1) * 16);
  }
}

template <typename Number>
void GgmlWeights::Widen(uint64_t row, std::span<Number> weights) const {
  if (codes_.empty()) {
    for (uint64_t i = 0; i < k_; ++i) weights[i] = static_cast<Number>(values_[row * k_ + i]);
    return;
  }
  const uint64_t run = inner_scales_.empty() ? group_ : kGroupsOfK;
  for (uint64_t i = 0; i < k_; i += run) {
    const uint64_t at = (row * k_ + i) / group_;
    auto scale = static_cast<Number>(scales_[at]);
    Number minimum = minima_.empty() ? Number{0} : static_cast<Number>(minima_[at]);
    if (run != group_) scale *= static_cast<Number>(inner_scales_[(row * k_ + i) / run]);
    if (!inner_minima_.empty()) {
      minimum *= static_cast<Number>(inner_minima_[(row * k_ + i) / run]);
    }
    const int16_t* codes = &codes_[row * k_ + i];
    Number* to = &weights[i];
    if (minima_.empty()) {
      // Zero keeps the sign of its scale.
      for (uint64_t j = 0; j < run; ++j) to[j] = static_cast<Number>(codes[j]) * scale;
    } else {
      for (uint64_t j = 0; j < run; ++j) to[j] = static_cast<Number>(codes[j]) * scale + minimum;
    }
  }
}

void GgmlWeights::CopyRow(uint64_t row, std::span<float> weights) const {
  Widen(row, weights);
}

void GgmlWeights::CopyRow(uint64_t row, std::span<double> weights) const {
  Widen(row, weights);
}

void GgmlWeights::CopyMinima(uint64_t row, std::span<double> minima) const {
  for (uint64_t i = 0; i < minima.size(); ++i) {
    minima[i] = static_cast<double>(minima_[row * minima.size() + i]);
  }
}

}  // namespace prepack
