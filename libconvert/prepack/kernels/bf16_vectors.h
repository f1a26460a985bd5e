#pragma once

// Rounding to bf16 for the bodies of the kernels, in registers and one by one. Other files have the
// same as RoundByInstruction and RoundTo (base/float_convert.h), compiled for other instruction
// sets.

namespace prepack::PREPACK_LEVEL {
namespace {

using enum Bf16Rounding;

[[gnu::always_inline]] inline uint32_t BitsOf(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

[[gnu::always_inline]] inline float ToBF16(float value, Bf16Rounding rounding) {
  if (rounding == kNone) return value;
  uint32_t bits = BitsOf(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    bits |= 0x400000U;
  } else if (rounding == kByInstruction && magnitude < 0x00800000U) {
    bits &= 0x80000000U;
  } else {
    bits += 0x7FFFU + (bits >> 16 & 1U);
  }
  return __builtin_bit_cast(float, bits & 0xFFFF0000U);
}

#ifndef PREPACK_SCALAR

// Ones where a < b, both below 2^31.
[[gnu::always_inline]] inline Vector AllOnesIfLess(Vector a, Vector b) {
  const Vector sign = ShiftRight32<31>(Sub32(a, b));
  return Sub32(Numbers32(0), sign);
}

// The bits of floats, rounded; those of numbers that are not NaN.
[[gnu::always_inline]] inline Vector RoundedUp(Vector bits) {
  const Vector odd = And(ShiftRight32<16>(bits), Numbers32(1));
  return Add32(Add32(bits, Numbers32(0x7FFF)), odd);
}

template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline Vector ToBF16(Vector bits) {
  if constexpr (kRounding == kNone) return bits;
  Vector rounded = RoundedUp(bits);
  if constexpr (kRounding == kNearestOfFinite) {
    return And(rounded, Numbers32(0xFFFF0000));
  }
  const Vector magnitude = And(bits, Numbers32(0x7FFFFFFF));
  if constexpr (kRounding == kByInstruction) {
    const Vector small = AllOnesIfLess(magnitude, Numbers32(0x00800000));
    rounded = Select(small, And(bits, Numbers32(0x80000000)), rounded);
  }
  const Vector nan = AllOnesIfLess(Numbers32(0x7F800000), magnitude);
  rounded = Select(nan, Or(bits, Numbers32(0x400000)), rounded);
  return And(rounded, Numbers32(0xFFFF0000));
}

// As f32, whose upper halves are the products; the lower ones may be anything.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline Vector RoundedProduct(Floats numbers, Floats scale) {
  const Vector bits = BitsOf(MultiplyFloats(numbers, scale));
  if constexpr (kRounding == kNearestOfFinite) return RoundedUp(bits);
  return ToBF16<kRounding>(bits);
}

// A scale is ordinary if its products with whole numbers of up to 512 are zero or finite and
// normal: kNearestOfFinite rounds these as the other ways do.
inline bool AreOrdinary(const float* scales, size_t count) {
  bool ordinary = true;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = BitsOf(scales[i]) & 0x7FFFFFFFU;
    ordinary &= magnitude >= BitsOf(0x1p-120F) && magnitude <= BitsOf(0x1p+100F);
  }
  return ordinary;
}

inline bool AreOrdinary(const NibbleScales& scales) {
  Vector strange = Numbers32(0);
  for (size_t i = 0; i < kStripChannels; i += kVectorFloats) {
    const Vector magnitude = And(Load(scales.scales + i), Numbers32(0x7FFFFFFF));
    strange = Or(strange, AllOnesIfLess(magnitude, Numbers32(BitsOf(0x1p-120F))));
    strange = Or(strange, AllOnesIfLess(Numbers32(BitsOf(0x1p+100F)), magnitude));
    const Vector zero = Load(scales.zeros + i);
    const Vector away = And(zero, Numbers32(0x7FFFFFFF));
    strange = Or(strange, AllOnesIfLess(Numbers32(BitsOf(256.0F)), away));
    const Vector whole = ToNumbers(LoadFloats(scales.zeros + i));
    strange = Or(strange, Xor(zero, BitsOf(ToFloats(whole))));
  }
  return IsZero(strange);
}

// How products of these scales are rounded as by instruction with the least work.
inline Bf16Rounding RoundingOf(const NibbleScales& scales) {
  return AreOrdinary(scales) ? kNearestOfFinite : kByInstruction;
}

// Calls work.operator()<rounding>(), which is one of `kOffered`.
template <Bf16Rounding... kOffered, typename Work>
[[gnu::always_inline]] inline void WithRounding(Bf16Rounding rounding, const Work& work) {
  ((rounding == kOffered ? work.template operator()<kOffered>() : void()), ...);
}

#endif

}  // namespace
}  // namespace prepack::PREPACK_LEVEL
