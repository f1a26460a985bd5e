#pragma once

// Conversions between f32, the two 16-bit floats and FP8, and from FP4. Narrowing rounds to
// nearest, ties to even, keeps subnormals, turns overflow into infinity, where there is one, and
// keeps NaN a NaN. Widening is exact. All are bit arithmetic: the result does not depend on the CPU
// or on its rounding mode. Those without a branch become vector code in loops.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "prepack/base/dtype.h"

namespace prepack {

constexpr float BF16ToF32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t F32ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (bits >> 16) | 0x40U;
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
}

constexpr float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  // Subnormal: mantissa · 2^-24, exact in f32.
  const auto subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24F);
  const uint32_t infinite = exponent == 0x1F ? 0x7F800000U : 0U;
  const uint32_t normal = ((exponent + 112U) << 23) | (mantissa << 13) | infinite;
  const uint32_t choose_normal = exponent == 0 ? 0U : 0xFFFFFFFFU;
  return std::bit_cast<float>(sign | (normal & choose_normal) | (subnormal & ~choose_normal));
}

// The bits of a magnitude in a float with kLost fewer bits of significand, whose smallest normal
// number has the exponent kLeast as f32 stores it. Below that, more bits are lost.
template <uint32_t kLost, uint32_t kLeast>
constexpr uint32_t NarrowMagnitude(uint32_t magnitude) {
  const uint32_t exponent = magnitude >> 23;
  const uint32_t shift = exponent >= kLeast ? kLost : kLost + kLeast - exponent;
  if (shift > 24) return 0;  // below half of the smallest subnormal
  const uint32_t significand =
      exponent >= kLeast ? magnitude - ((kLeast - 1) << 23) : (magnitude & 0x7FFFFFU) | 0x800000U;
  const uint32_t half = 1U << (shift - 1);
  const uint32_t odd = (significand >> shift) & 1U;
  return (significand + half - 1U + odd) >> shift;
}

constexpr uint16_t F32ToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U);
  // 65520 is halfway between the largest f16 and what would be the next: it rounds to infinity.
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);
  return static_cast<uint16_t>(sign | NarrowMagnitude<13, 113>(magnitude));  // 2^-14
}

// FP8 E4M3 as checkpoints store it ("fn"): no infinity, 0x7F and 0xFF are NaN, the largest is 448.
constexpr float F8E4M3ToF32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80U) << 24;
  const uint32_t exponent = (bits >> 3) & 0xFU;
  const uint32_t mantissa = bits & 7U;
  if ((bits & 0x7FU) == 0x7FU) return std::bit_cast<float>(sign | 0x7FC00000U);
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 120U) << 23) | (mantissa << 20));
  // Subnormal: mantissa · 2^-9.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9F;
  return sign != 0 ? -magnitude : magnitude;
}

// Nearest, ties to even; what is beyond 448 becomes 448. Not of NaN.
constexpr uint8_t F32ToF8E4M3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x43E00000U) return static_cast<uint8_t>(sign | 0x7EU);  // 448
  return static_cast<uint8_t>(sign | NarrowMagnitude<20, 121>(magnitude));  // 2^-6
}

// FP4 E2M1, in the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6, with the sign in bit 3. There is no
// infinity and no NaN.
constexpr float F4E2M1ToF32(uint8_t bits) {
  const uint32_t exponent = (bits >> 1) & 3U;
  const uint32_t mantissa = bits & 1U;
  const float magnitude = exponent == 0
                              ? static_cast<float>(mantissa) * 0.5F
                              : static_cast<float>((2U + mantissa) << (exponent - 1U)) * 0.5F;
  return (bits & 8U) != 0 ? -magnitude : magnitude;
}

// E8M0, the exponent of a scale: 2^(bits − 127), of which the smallest is subnormal in f32; 255 is
// NaN.
constexpr float F8E8M0ToF32(uint8_t bits) {
  if (bits == 0) return 0x1p-127F;
  if (bits == 0xFFU) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 23);
}

// The power of two at or below |value|; 2^-127 for anything smaller.
constexpr uint8_t F32ToF8E8M0(float value) {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 23);
}

// `value` as dtype (BF16, F16, F8_E4M3 or F8_E8M0) holds it, widened again. F32 is left alone.
constexpr float RoundTo(DType dtype, float value) {
  if (dtype == DType::kBF16) return BF16ToF32(F32ToBF16(value));
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(value));
  if (dtype == DType::kF8E4M3) return F8E4M3ToF32(F32ToF8E4M3(value));
  if (dtype == DType::kF8E8M0) return F8E8M0ToF32(F32ToF8E8M0(value));
  return value;
}

// The same, but to bf16 as the instruction VCVTNEPS2BF16 does it: what is below 2^-126 counts as
// zero. There is no such quirk in conversions to F16.
inline float RoundByInstruction(DType dtype, float value) {
  const bool flush = dtype == DType::kBF16 && std::abs(value) < std::numeric_limits<float>::min();
  return flush ? std::copysign(0.0F, value) : RoundTo(dtype, value);
}

}  // namespace prepack
