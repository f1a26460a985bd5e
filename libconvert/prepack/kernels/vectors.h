#ifndef PREPACK_KERNELS_VECTORS_H_
#define PREPACK_KERNELS_VECTORS_H_

// Registers for the bodies of the kernels (*_body.h). kernels_LEVEL.cpp includes this first, with
// PREPACK_LEVEL set to the namespace of its level.

#include "prepack/kernels/kernels.h"
#include "prepack/kernels/memory.h"
// From here on the instructions of the level may be used.
#include "prepack/kernels/instructions.h"
// With the macros of that.
#include <xsimd/xsimd.hpp>

namespace prepack::PREPACK_LEVEL {
namespace {

#if defined(PREPACK_VBMI)
using Arch = xsimd::avx512bw;
constexpr Isa kBelow = Isa::kAvx512;
#elif defined(PREPACK_AVX512)
using Arch = xsimd::avx512bw;
constexpr Isa kBelow = Isa::kAvx2;
#else
using Arch = xsimd::avx2;
constexpr Isa kBelow = Isa::kScalar;
#endif

// A whole register. The elements matter to shifts and sums only.
using Vector = xsimd::batch<uint16_t, Arch>;
constexpr size_t kVectorBytes = sizeof(Vector);
constexpr size_t kLaneBytes = 16;
constexpr size_t kLanes = kVectorBytes / kLaneBytes;

// What bodies leave over goes to the versions of the level below.
[[gnu::always_inline]] inline const KernelTable& Below() {
  return KernelsFor(kBelow);
}

[[gnu::always_inline]] inline Vector Load(const void* from) {
  return Vector::load_unaligned(static_cast<const uint16_t*>(from));
}

[[gnu::always_inline]] inline void Store(void* to, Vector value) {
  value.store_unaligned(static_cast<uint16_t*>(to));
}

// What xsimd's operators call: those are not inline, and in large functions calls to them stay.
[[gnu::always_inline]] inline Vector And(Vector a, Vector b) {
  return xsimd::kernel::bitwise_and<Arch>(a, b, Arch{});
}

[[gnu::always_inline]] inline Vector Or(Vector a, Vector b) {
  return xsimd::kernel::bitwise_or<Arch>(a, b, Arch{});
}

[[gnu::always_inline]] inline Vector Xor(Vector a, Vector b) {
  return xsimd::kernel::bitwise_xor<Arch>(a, b, Arch{});
}

// Sums of each 16 bits.
[[gnu::always_inline]] inline Vector Add16(Vector a, Vector b) {
  return xsimd::kernel::add<Arch>(a, b, Arch{});
}

[[gnu::always_inline]] inline Vector Sub16(Vector a, Vector b) {
  return xsimd::kernel::sub<Arch>(a, b, Arch{});
}

[[gnu::always_inline]] inline __m128i LoadLane(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

[[gnu::always_inline]] inline void StoreLane(void* to, __m128i value) {
  _mm_storeu_si128(static_cast<__m128i*>(to), value);
}

// What xsimd has not, or not in every version as it is wanted here: inside of lanes. Intrinsics
// that are the same for both widths but for their names:
#ifdef PREPACK_AVX512
#define PREPACK_MM(name) _mm512_##name
#else
#define PREPACK_MM(name) _mm256_##name
#endif

// Shifts of each 16 bits.
template <int kBits>
[[gnu::always_inline]] inline Vector ShiftLeft(Vector numbers) {
  return PREPACK_MM(slli_epi16)(numbers, kBits);
}

template <int kBits>
[[gnu::always_inline]] inline Vector ShiftRight(Vector numbers) {
  return PREPACK_MM(srli_epi16)(numbers, kBits);
}

// The same byte, or 16-bit number, everywhere.
[[gnu::always_inline]] inline Vector Bytes(int byte) {
  return PREPACK_MM(set1_epi8)(static_cast<char>(byte));
}

[[gnu::always_inline]] inline Vector Numbers(int number) {
  return PREPACK_MM(set1_epi16)(static_cast<int16_t>(number));
}

// Adds up each two of unsigned bytes, and of signed 16 bits.
[[gnu::always_inline]] inline Vector AddTwos(Vector bytes) {
  return PREPACK_MM(maddubs_epi16)(bytes, Bytes(1));
}

[[gnu::always_inline]] inline Vector AddFours(Vector twos) {
  return PREPACK_MM(madd_epi16)(twos, Numbers(1));
}

[[gnu::always_inline]] inline Vector ShuffleBytes(Vector bytes, Vector places) {
  return PREPACK_MM(shuffle_epi8)(bytes, places);
}

// Interleaves units of 1, 2, 4 or 8 bytes of the low, or high, halves of the lanes.
template <size_t kUnit>
[[gnu::always_inline]] inline Vector UnpackLow(Vector a, Vector b) {
  if constexpr (kUnit == 1) return PREPACK_MM(unpacklo_epi8)(a, b);
  if constexpr (kUnit == 2) return PREPACK_MM(unpacklo_epi16)(a, b);
  if constexpr (kUnit == 4) return PREPACK_MM(unpacklo_epi32)(a, b);
  if constexpr (kUnit == 8) return PREPACK_MM(unpacklo_epi64)(a, b);
}

template <size_t kUnit>
[[gnu::always_inline]] inline Vector UnpackHigh(Vector a, Vector b) {
  if constexpr (kUnit == 1) return PREPACK_MM(unpackhi_epi8)(a, b);
  if constexpr (kUnit == 2) return PREPACK_MM(unpackhi_epi16)(a, b);
  if constexpr (kUnit == 4) return PREPACK_MM(unpackhi_epi32)(a, b);
  if constexpr (kUnit == 8) return PREPACK_MM(unpackhi_epi64)(a, b);
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

// The sum of eight numbers.
[[gnu::always_inline]] inline int32_t Total8(__m256i numbers) {
  __m128i sum =
      _mm_add_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

// Eight bytes of each of two places.
[[gnu::always_inline]] inline __m128i LoadTwoWords(const uint8_t* words, size_t stride) {
  const auto* first = reinterpret_cast<const __m128i*>(words);
  const auto* second = reinterpret_cast<const __m128i*>(words + stride);
  return _mm_unpacklo_epi64(_mm_loadl_epi64(first), _mm_loadl_epi64(second));
}

// 16 bytes of each of two places.
[[gnu::always_inline]] inline __m256i LoadTwoLanes(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(LoadLane(low)), LoadLane(high), 1);
}

[[gnu::always_inline]] inline void StoreTwoLanes(void* low, void* high, __m256i value) {
  StoreLane(low, _mm256_castsi256_si128(value));
  StoreLane(high, _mm256_extracti128_si256(value, 1));
}

#ifdef PREPACK_AVX512

// Shuffles are the narrow place: CPUs do one a cycle, but two bitwise or masked operations and two
// loads beside it. So bytes of different rows are brought together while they are loaded, where
// that saves a shuffle, and a masked shuffle that exchanges bytes of two registers does the work of
// several. On Zen 4 a masked load of half a register or less counts as a shuffle, too: there, two
// halves cost as much as an exchange of lanes, and four lanes more.

// The same 16 bytes in every lane.
[[gnu::always_inline]] inline Vector Repeat(__m128i lane) {
  return _mm512_broadcast_i32x4(lane);
}

// The bits of `a` where `mask` has ones, else those of `b`. The result takes the register of the
// first operand, which is best not the mask.
[[gnu::always_inline]] inline Vector Select(Vector mask, Vector a, Vector b) {
  return _mm512_ternarylogic_epi32(b, a, mask, 0xD8);
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(Vector& a, Vector& b) {
  const Vector low_halves = Bytes(0x0F);
  const Vector even = Select(low_halves, a, ShiftLeft<4>(b));
  b = Select(low_halves, ShiftRight<4>(a), b);
  a = even;
}

[[gnu::always_inline]] inline int32_t Total(Vector numbers) {
  return Total8(
      _mm256_add_epi32(_mm512_castsi512_si256(numbers), _mm512_extracti64x4_epi64(numbers, 1)));
}

// 32 bytes of each of two places. Masked broadcasts from memory are no shuffles.
[[gnu::always_inline]] inline Vector LoadHalves(const void* low, const void* high) {
  return _mm512_mask_broadcast_i64x4(
      _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(low))), 0xF0,
      _mm256_loadu_si256(static_cast<const __m256i*>(high)));
}

// Its inverse. On Zen 4 two stores of 32 bytes take as long as one of 64.
[[gnu::always_inline]] inline void StoreHalves(void* low, void* high, Vector value) {
  _mm256_storeu_si256(static_cast<__m256i*>(low), _mm512_castsi512_si256(value));
  _mm256_storeu_si256(static_cast<__m256i*>(high), _mm512_extracti64x4_epi64(value, 1));
}

// Four lanes.
[[gnu::always_inline]] inline Vector JoinLanes(__m128i a, __m128i b, __m128i c, __m128i d) {
  __m512i lanes = _mm512_castsi128_si512(a);
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x00F0, b);
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x0F00, c);
  return _mm512_mask_broadcast_i32x4(lanes, 0xF000, d);
}

// 16 bytes of each of four places that are `stride` bytes apart.
[[gnu::always_inline]] inline Vector LoadLanes(const void* from, size_t stride) {
  const auto* first = static_cast<const char*>(from);
  return JoinLanes(LoadLane(first), LoadLane(first + stride), LoadLane(first + 2 * stride),
                   LoadLane(first + 3 * stride));
}

// Exchanges odd lanes of `a` with even lanes of `b`. Its own inverse.
[[gnu::always_inline]] inline void ExchangeLanes(Vector& a, Vector& b) {
  const __m512i even = _mm512_mask_shuffle_i64x2(a, 0xCC, b, b, 0xA0);
  b = _mm512_mask_shuffle_i64x2(b, 0x33, a, a, 0xF5);
  a = even;
}

#else

[[gnu::always_inline]] inline Vector Repeat(__m128i lane) {
  return _mm256_broadcastsi128_si256(lane);
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(Vector& a, Vector& b) {
  const Vector moved = And(Xor(ShiftRight<4>(a), b), Bytes(0x0F));
  b = Xor(b, moved);
  a = Xor(a, ShiftLeft<4>(moved));
}

[[gnu::always_inline]] inline int32_t Total(Vector numbers) {
  return Total8(numbers);
}

#endif

}  // namespace
}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_VECTORS_H_
