#pragma once

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
PREPACK_BITWISE(And, and, vandq_u8)
PREPACK_BITWISE(Or, or, vorrq_u8)
PREPACK_BITWISE(Xor, xor, veorq_u8)
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
PREPACK_OF_UNITS(UnpackLow, unpacklo, vzip1q)
PREPACK_OF_UNITS(UnpackHigh, unpackhi, vzip2q)

PREPACK_SHIFT(ShiftLeft, slli_epi16, vshlq_n_u16)  // of each 16 bits
PREPACK_SHIFT(ShiftRight, srli_epi16, vshrq_n_u16)
PREPACK_SHIFT(ShiftRightSigned16, srai_epi16, vshrq_n_s16)
PREPACK_SHIFT(ShiftLeft32, slli_epi32, vshlq_n_u32)
PREPACK_SHIFT(ShiftRight32, srli_epi32, vshrq_n_u32)
PREPACK_SHIFT(ShiftLeft64, slli_epi64, vshlq_n_u64)
PREPACK_SHIFT(ShiftRight64, srli_epi64, vshrq_n_u64)

// The same number everywhere.
PREPACK_REPEAT(Vector, Bytes, int, int8_t, set1_epi8, vdupq_n_s8)
PREPACK_REPEAT(Vector, Numbers, int, int16_t, set1_epi16, vdupq_n_s16)
PREPACK_REPEAT(Vector, Numbers32, uint32_t, int32_t, set1_epi32, vdupq_n_s32)
PREPACK_REPEAT(Floats, RepeatFloat, float, float, set1_ps, vdupq_n_f32)

PREPACK_MEMORY(Floats, LoadFloats, StoreFloats, float, ps, f32)
PREPACK_BINARY(Floats, AddFloats, add_ps, vaddq_f32)
PREPACK_BINARY(Floats, SubFloats, sub_ps, vsubq_f32)
PREPACK_BINARY(Floats, MultiplyFloats, mul_ps, vmulq_f32)
PREPACK_UNARY(Floats, Vector, ToFloats, cvtepi32_ps, vcvtq_f32_s32)
// Rounded towards zero. What 32 bits cannot hold becomes anything.
PREPACK_UNARY(Vector, Floats, ToNumbers, cvttps_epi32, vcvtq_s32_f32)
#ifndef PREPACK_AVX512
PREPACK_MEMORY(Doubles, LoadDoubles, StoreDoubles, double, pd, f64)
PREPACK_BINARY(Doubles, AddDoubles, add_pd, vaddq_f64)
PREPACK_BINARY(Doubles, SubDoubles, sub_pd, vsubq_f64)
PREPACK_BINARY(Doubles, MultiplyDoubles, mul_pd, vmulq_f64)
// The greater number, which is the second where the first is NaN.
PREPACK_BINARY(Doubles, Greater, max_pd, vmaxnmq_f64)
#endif

// Takes the lanes of kCount registers, lane by lane, as one sequence of units and interleaves its
// first half with its second. On the bits of a unit's index, which are those of the register and
// then those of its place in the lane, this is a rotation to the left by one. `kTimes`: so often.
template <size_t kUnit, size_t kTimes = 1, size_t kCount = 0>
[[gnu::always_inline]] inline void RotateIndex(Vector (&reg)[kCount]) {
#pragma GCC unroll 4
  for (size_t time = 0; time < kTimes; ++time) {
    Vector next[kCount];
#pragma GCC unroll 8
    for (size_t i = 0; i < kCount / 2; ++i) {
      next[2 * i] = UnpackLow<kUnit>(reg[i], reg[i + kCount / 2]);
      next[2 * i + 1] = UnpackHigh<kUnit>(reg[i], reg[i + kCount / 2]);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < kCount; ++i) reg[i] = next[i];
  }
}

// Eight bytes of each of two places that lie `stride` apart.
[[gnu::always_inline]] inline Lane LoadTwoWords(const uint8_t* words, size_t stride) {
  return JoinHalves(words, words + stride);
}

// The sum of numbers of 32 bits.
[[gnu::always_inline]] inline int32_t Total(Vector numbers) {
  return TotalOfLane(SumLanes(numbers));
}

#ifdef PREPACK_AVX512

// Adds neighbouring lanes of `a` and then of `b`.
[[gnu::always_inline]] inline Vector AddLanePairs(Vector a, Vector b) {
  return Add32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(Vector& a, Vector& b) {
  const Vector low_halves = Bytes(0x0F);
  const Vector even = Select(low_halves, a, ShiftLeft<4>(b));
  b = Select(low_halves, ShiftRight<4>(a), b);
  a = even;
}

#else

[[gnu::always_inline]] inline Vector AddLanePairs(Vector a, Vector b) {
  return Add32(FirstLanes(a, b), SecondLanes(a, b));
}

[[gnu::always_inline]] inline void SwapNibbles(Vector& a, Vector& b) {
  const Vector moved = And(Xor(ShiftRight<4>(a), b), Bytes(0x0F));
  b = Xor(b, moved);
  a = Xor(a, ShiftLeft<4>(moved));
}

// The bits of `a` where `mask` has ones, else those of `b`.
[[gnu::always_inline]] inline Vector Select(Vector mask, Vector a, Vector b) {
  return Xor(b, And(mask, Xor(a, b)));
}

// The fields of 4 bits of as many words as a register has room for, in 32 bits each.
[[gnu::always_inline]] inline Vector SplitWords(const void* words) {
  uint32_t word = 0;
  __builtin_memcpy(&word, words, sizeof word);
  const Vector shifts = WordsOf<0, 4, 8, 12, 16, 20, 24, 28>();
  return And(ShiftRightEach(Numbers32(word), shifts), Numbers32(15));
}

#endif

// The nibbles of half a register, a byte each, in their order.
[[gnu::always_inline]] inline Vector SplitNibbles(const void* bytes) {
  const Vector words = WidenBytes(bytes);
  return And(Or(words, ShiftLeft<4>(words)), Bytes(0x0F));
}

// Two rows of nibbles become bytes with a nibble of each: in `a` those of the columns in the low
// halves of the lanes, in their order, and in `b` those of the high halves.
[[gnu::always_inline]] inline void ZipNibbles(Vector& a, Vector& b) {
  SwapNibbles(a, b);  // now the even columns of both rows, and the odd ones
  const Vector low = UnpackLow<1>(a, b);
  b = UnpackHigh<1>(a, b);
  a = low;
}

// In each lane, the bytes at even places and then those at odd ones.
[[gnu::always_inline]] inline Vector ByParity(Vector bytes) {
  return ShuffleBytes(bytes,
                      Repeat(LaneOf<0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15>()));
}

// The inverse of ZipNibbles.
[[gnu::always_inline]] inline void UnzipNibbles(Vector& a, Vector& b) {
  const Vector low = ByParity(a);
  const Vector high = ByParity(b);
  a = UnpackLow<8>(low, high);
  b = UnpackHigh<8>(low, high);
  SwapNibbles(a, b);
}

}  // namespace
}  // namespace prepack::PREPACK_LEVEL
