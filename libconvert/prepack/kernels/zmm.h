#ifndef PREPACK_KERNELS_ZMM_H_
#define PREPACK_KERNELS_ZMM_H_

// Registers of 64 bytes, for the files that may use AVX-512. In an unnamed namespace and inlined,
// so that no other file picks up a copy.
//
// Shuffles are the narrow place: CPUs do one a cycle, but two bitwise or masked operations and two
// loads beside it. So bytes of different rows are brought together while they are loaded, where
// that saves a shuffle, and a masked shuffle that exchanges bytes of two registers does the work of
// several. On Zen 4 a masked load of half a register or less counts as a shuffle, too: there, two
// halves cost as much as an exchange of lanes, and four lanes more.

#include <cstddef>
#include <cstdint>

#include "prepack/kernels/avx512_intrinsics.h"

namespace prepack {
namespace {  // NOLINT(google-build-namespaces): see above

constexpr size_t kZmmBytes = 64;

[[gnu::always_inline]] inline __m512i Load(const void* from) {
  return _mm512_loadu_si512(from);
}

[[gnu::always_inline]] inline void Store(void* to, __m512i value) {
  _mm512_storeu_si512(to, value);
}

[[gnu::always_inline]] inline __m128i LoadLane(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// 32 bytes of each of two places. Masked broadcasts from memory are no shuffles.
[[gnu::always_inline]] inline __m512i LoadHalves(const void* low, const void* high) {
  return _mm512_mask_broadcast_i64x4(
      _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(low))), 0xF0,
      _mm256_loadu_si256(static_cast<const __m256i*>(high)));
}

// Its inverse. On Zen 4 two stores of 32 bytes take as long as one of 64.
[[gnu::always_inline]] inline void StoreHalves(void* low, void* high, __m512i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(low), _mm512_castsi512_si256(value));
  _mm256_storeu_si256(static_cast<__m256i*>(high), _mm512_extracti64x4_epi64(value, 1));
}

// Four lanes.
[[gnu::always_inline]] inline __m512i JoinLanes(__m128i a, __m128i b, __m128i c, __m128i d) {
  __m512i lanes = _mm512_castsi128_si512(a);
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x00F0, b);
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x0F00, c);
  return _mm512_mask_broadcast_i32x4(lanes, 0xF000, d);
}

// 16 bytes of each of four places that are `stride` bytes apart.
[[gnu::always_inline]] inline __m512i LoadLanes(const void* from, size_t stride) {
  const auto* first = static_cast<const char*>(from);
  return JoinLanes(LoadLane(first), LoadLane(first + stride), LoadLane(first + 2 * stride),
                   LoadLane(first + 3 * stride));
}

// The bits of `a` where `mask` has ones, else those of `b`. The result takes the register of the
// first operand, which is best not the mask.
[[gnu::always_inline]] inline __m512i Select(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(b, a, mask, 0xD8);
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(__m512i& a, __m512i& b) {
  const __m512i low_halves = _mm512_set1_epi8(0x0F);
  const __m512i even = Select(low_halves, a, _mm512_slli_epi16(b, 4));
  b = Select(low_halves, _mm512_srli_epi16(a, 4), b);
  a = even;
}

// Interleaves units of 1, 2, 4 or 8 bytes of the low, or high, halves of the lanes.
template <size_t kUnit>
[[gnu::always_inline]] inline __m512i UnpackLow(__m512i a, __m512i b) {
  if constexpr (kUnit == 1) return _mm512_unpacklo_epi8(a, b);
  if constexpr (kUnit == 2) return _mm512_unpacklo_epi16(a, b);
  if constexpr (kUnit == 4) return _mm512_unpacklo_epi32(a, b);
  if constexpr (kUnit == 8) return _mm512_unpacklo_epi64(a, b);
}

template <size_t kUnit>
[[gnu::always_inline]] inline __m512i UnpackHigh(__m512i a, __m512i b) {
  if constexpr (kUnit == 1) return _mm512_unpackhi_epi8(a, b);
  if constexpr (kUnit == 2) return _mm512_unpackhi_epi16(a, b);
  if constexpr (kUnit == 4) return _mm512_unpackhi_epi32(a, b);
  if constexpr (kUnit == 8) return _mm512_unpackhi_epi64(a, b);
}

// Takes the lanes of kCount registers, lane by lane, as one sequence of units and interleaves its
// first half with its second. On the bits of a unit's index, which are those of the register and
// then those of its place in the lane, this is a rotation to the left by one.
template <size_t kUnit, size_t kCount>
[[gnu::always_inline]] inline void RotateIndex(__m512i (&reg)[kCount]) {
  __m512i next[kCount];
  for (size_t i = 0; i < kCount / 2; ++i) {
    next[2 * i] = UnpackLow<kUnit>(reg[i], reg[i + kCount / 2]);
    next[2 * i + 1] = UnpackHigh<kUnit>(reg[i], reg[i + kCount / 2]);
  }
  for (size_t i = 0; i < kCount; ++i) reg[i] = next[i];
}

}  // namespace
}  // namespace prepack

#endif  // PREPACK_KERNELS_ZMM_H_
