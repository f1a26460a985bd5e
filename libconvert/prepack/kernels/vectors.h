#ifndef PREPACK_KERNELS_VECTORS_H_
#define PREPACK_KERNELS_VECTORS_H_

// Registers for the bodies of the kernels (*_body.h), and what is done with them. A Vector is made
// of lanes of 16 bytes: two of them with AVX2 and with NEON, where it is a pair of registers, and
// four with AVX-512. Bodies for two lanes serve AVX2 and NEON alike; NEON has as many pairs as AVX2
// has registers.
//
// kernels_LEVEL.cpp includes this first, with PREPACK_LEVEL set to the namespace of its level.

#include "prepack/kernels/kernels.h"
#include "prepack/kernels/memory.h"
// From here on the instructions of the level may be used.
#include "prepack/kernels/instructions.h"

// Types, and what has no like on the other architecture.
#ifdef PREPACK_NEON
#include "prepack/kernels/vectors_neon.h"
#else
#include "prepack/kernels/vectors_x86.h"
#endif

namespace prepack::PREPACK_LEVEL {
namespace {

constexpr size_t kVectorBytes = sizeof(Vector);
constexpr size_t kLaneBytes = 16;
constexpr size_t kLanes = kVectorBytes / kLaneBytes;
constexpr size_t kVectorFloats = kVectorBytes / sizeof(float);

// What bodies leave over goes to the versions of the level below.
[[gnu::always_inline]] inline const KernelTable& Below() {
  return KernelsFor(kBelow);
}

// One instruction each, of x86 and of NEON. Numbers are of as many bits as the name says, and wrap.
PREPACK_BINARY(Vector, Add8, add_epi8, vaddq_u8)
PREPACK_BINARY(Vector, Add16, add_epi16, vaddq_u16)
PREPACK_BINARY(Vector, Add32, add_epi32, vaddq_u32)
PREPACK_BINARY(Vector, Add64, add_epi64, vaddq_u64)
PREPACK_BINARY(Vector, Sub8, sub_epi8, vsubq_u8)
PREPACK_BINARY(Vector, Sub16, sub_epi16, vsubq_u16)
PREPACK_BINARY(Vector, Sub32, sub_epi32, vsubq_u32)
PREPACK_BINARY(Vector, Multiply16, mullo_epi16, vmulq_u16)
PREPACK_BINARY(Vector, Multiply32, mullo_epi32, vmulq_u32)
PREPACK_BINARY(Vector, LesserSigned8, min_epi8, vminq_s8)
// Sums of two products each, of signed 16 bits, in 32.
PREPACK_BINARY(Vector, MultiplyPairs, madd_epi16, MultiplyLanePairs)
// Bytes of each lane of the first from the places in it that the second names: up to 15, or 255
// for a zero.
PREPACK_BINARY(Vector, ShuffleBytes, shuffle_epi8, vqtbl1q_u8)
// Interleaves units of 1, 2, 4 or 8 bytes of the low, or high, halves of the lanes.
PREPACK_BINARY(Vector, UnpackLow1, unpacklo_epi8, vzip1q_u8)
PREPACK_BINARY(Vector, UnpackLow2, unpacklo_epi16, vzip1q_u16)
PREPACK_BINARY(Vector, UnpackLow4, unpacklo_epi32, vzip1q_u32)
PREPACK_BINARY(Vector, UnpackLow8, unpacklo_epi64, vzip1q_u64)
PREPACK_BINARY(Vector, UnpackHigh1, unpackhi_epi8, vzip2q_u8)
PREPACK_BINARY(Vector, UnpackHigh2, unpackhi_epi16, vzip2q_u16)
PREPACK_BINARY(Vector, UnpackHigh4, unpackhi_epi32, vzip2q_u32)
PREPACK_BINARY(Vector, UnpackHigh8, unpackhi_epi64, vzip2q_u64)

PREPACK_SHIFT(ShiftLeft, slli_epi16, vshlq_n_u16)  // of each 16 bits
PREPACK_SHIFT(ShiftRight, srli_epi16, vshrq_n_u16)
PREPACK_SHIFT(ShiftRightSigned16, srai_epi16, vshrq_n_s16)
PREPACK_SHIFT(ShiftRight32, srli_epi32, vshrq_n_u32)
PREPACK_SHIFT(ShiftLeft64, slli_epi64, vshlq_n_u64)
PREPACK_SHIFT(ShiftRight64, srli_epi64, vshrq_n_u64)

// The same number everywhere.
PREPACK_REPEAT(Bytes, int, set1_epi8, char, vdupq_n_u8)
PREPACK_REPEAT(Numbers, int, set1_epi16, int16_t, vdupq_n_u16)
PREPACK_REPEAT(Numbers32, uint32_t, set1_epi32, int32_t, vdupq_n_u32)

PREPACK_BINARY(Floats, AddFloats, add_ps, vaddq_f32)
PREPACK_BINARY(Floats, SubFloats, sub_ps, vsubq_f32)
PREPACK_BINARY(Floats, MultiplyFloats, mul_ps, vmulq_f32)
PREPACK_UNARY(Floats, Vector, ToFloats, cvtepi32_ps, vcvtq_f32_s32)
// Rounded towards zero. What 32 bits cannot hold becomes anything.
PREPACK_UNARY(Vector, Floats, ToNumbers, cvttps_epi32, vcvtq_s32_f32)
#ifndef PREPACK_AVX512
PREPACK_BINARY(Doubles, AddDoubles, add_pd, vaddq_f64)
PREPACK_BINARY(Doubles, SubDoubles, sub_pd, vsubq_f64)
PREPACK_BINARY(Doubles, MultiplyDoubles, mul_pd, vmulq_f64)
// The greater number, which is the second where the first is NaN.
PREPACK_BINARY(Doubles, Greater, max_pd, vmaxnmq_f64)
#endif

template <size_t kUnit>
[[gnu::always_inline]] inline Vector UnpackLow(Vector a, Vector b) {
  if constexpr (kUnit == 1) return UnpackLow1(a, b);
  if constexpr (kUnit == 2) return UnpackLow2(a, b);
  if constexpr (kUnit == 4) return UnpackLow4(a, b);
  if constexpr (kUnit == 8) return UnpackLow8(a, b);
}

template <size_t kUnit>
[[gnu::always_inline]] inline Vector UnpackHigh(Vector a, Vector b) {
  if constexpr (kUnit == 1) return UnpackHigh1(a, b);
  if constexpr (kUnit == 2) return UnpackHigh2(a, b);
  if constexpr (kUnit == 4) return UnpackHigh4(a, b);
  if constexpr (kUnit == 8) return UnpackHigh8(a, b);
}

// Takes the lanes of kCount registers, lane by lane, as one sequence of units and interleaves its
// first half with its second. On the bits of a unit's index, which are those of the register and
// then those of its place in the lane, this is a rotation to the left by one.
template <size_t kUnit, size_t kCount>
[[gnu::always_inline]] inline void RotateIndex(Vector (&reg)[kCount]) {
  Vector next[kCount];
#pragma GCC unroll 8
  for (size_t i = 0; i < kCount / 2; ++i) {
    next[2 * i] = UnpackLow<kUnit>(reg[i], reg[i + kCount / 2]);
    next[2 * i + 1] = UnpackHigh<kUnit>(reg[i], reg[i + kCount / 2]);
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < kCount; ++i) reg[i] = next[i];
}

// The sum of numbers of 32 bits.
[[gnu::always_inline]] inline int32_t Total(Vector numbers) {
  return TotalOfLane(SumLanes(numbers));
}

#ifdef PREPACK_AVX512

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(Vector& a, Vector& b) {
  const Vector low_halves = Bytes(0x0F);
  const Vector even = Select(low_halves, a, ShiftLeft<4>(b));
  b = Select(low_halves, ShiftRight<4>(a), b);
  a = even;
}

#else

[[gnu::always_inline]] inline void SwapNibbles(Vector& a, Vector& b) {
  const Vector moved = And(Xor(ShiftRight<4>(a), b), Bytes(0x0F));
  b = Xor(b, moved);
  a = Xor(a, ShiftLeft<4>(moved));
}

// The codes of 16 bytes, a byte each, in their order.
[[gnu::always_inline]] inline Vector SplitNibbles(Lane both) {
  const Lane low_halves = LowLane(Bytes(0x0F));
  return InterleaveBytes(AndLane(both, low_halves), AndLane(ShiftLaneRight4(both), low_halves));
}

// The fields of 4 bits of a word, in 32 bits each.
[[gnu::always_inline]] inline Vector SplitWord(uint32_t word) {
  const Vector shifts = WordsOf<0, 4, 8, 12, 16, 20, 24, 28>();
  return And(ShiftRightEach(Numbers32(word), shifts), Numbers32(15));
}

#endif

}  // namespace
}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_VECTORS_H_
