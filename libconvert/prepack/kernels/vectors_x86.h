#pragma once

// What vectors.h is made of with AVX2 and AVX-512.

// With the macros of instructions.h.
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

// Intrinsics that are the same for both widths but for their names.
#ifdef PREPACK_AVX512
#define PREPACK_MM(name) _mm512_##name
#define PREPACK_SI(name) _mm512_##name##_si512
using Floats = __m512;
#else
#define PREPACK_MM(name) _mm256_##name
#define PREPACK_SI(name) _mm256_##name##_si256
using Floats = __m256;
#endif

// A whole register. The elements matter to shifts and sums only.
using Vector = xsimd::batch<uint16_t, Arch>;
using Lane = __m128i;

#define PREPACK_BINARY(type, name, x86, neon)               \
  [[gnu::always_inline]] inline type name(type a, type b) { \
    return PREPACK_MM(x86)(a, b);                           \
  }
#define PREPACK_UNARY(to, from, name, x86, neon)  \
  [[gnu::always_inline]] inline to name(from a) { \
    return PREPACK_MM(x86)(a);                    \
  }
#define PREPACK_SHIFT(name, x86, neon)                        \
  template <int kBits>                                        \
  [[gnu::always_inline]] inline Vector name(Vector numbers) { \
    return PREPACK_MM(x86)(numbers, kBits);                   \
  }
#define PREPACK_REPEAT(type, name, from, element, x86, neon) \
  [[gnu::always_inline]] inline type name(from number) {     \
    return PREPACK_MM(x86)(static_cast<element>(number));    \
  }
#define PREPACK_OF_UNITS(name, x86, neon)                           \
  template <size_t kUnit>                                           \
  [[gnu::always_inline]] inline Vector name(Vector a, Vector b) {   \
    if constexpr (kUnit == 1) return PREPACK_MM(x86##_epi8)(a, b);  \
    if constexpr (kUnit == 2) return PREPACK_MM(x86##_epi16)(a, b); \
    if constexpr (kUnit == 4) return PREPACK_MM(x86##_epi32)(a, b); \
    if constexpr (kUnit == 8) return PREPACK_MM(x86##_epi64)(a, b); \
  }
#define PREPACK_MEMORY(type, load, store, element, x86, neon)                            \
  [[gnu::always_inline]] inline type load(const element* from) {                         \
    return PREPACK_MM(loadu_##x86)(from);                                                \
  }                                                                                      \
  [[gnu::always_inline]] inline void store(std::add_pointer_t<element> to, type value) { \
    PREPACK_MM(storeu_##x86)(to, value);                                                 \
  }
// What xsimd's operators call: those are not inline, and in large functions calls to them stay.
#define PREPACK_BITWISE(name, x86, neon)                          \
  [[gnu::always_inline]] inline Vector name(Vector a, Vector b) { \
    return xsimd::kernel::bitwise_##x86<Arch>(a, b, Arch{});      \
  }

[[gnu::always_inline]] inline Vector Load(const void* from) {
  return Vector::load_unaligned(static_cast<const uint16_t*>(from));
}

[[gnu::always_inline]] inline void Store(void* to, Vector value) {
  value.store_unaligned(static_cast<uint16_t*>(to));
}

[[gnu::always_inline]] inline Vector BitsOf(Floats values) {
  return PREPACK_SI(castps)(values);
}

[[gnu::always_inline]] inline Lane LoadLane(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

[[gnu::always_inline]] inline void StoreLane(void* to, Lane value) {
  _mm_storeu_si128(static_cast<__m128i*>(to), value);
}

template <int... kBytes>
[[gnu::always_inline]] inline Lane LaneOf() {
  return _mm_setr_epi8(static_cast<char>(kBytes)...);
}

// Eight bytes.
[[gnu::always_inline]] inline Lane LoadWord(const void* from) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(from));
}

// Eight bytes of each of two places.
[[gnu::always_inline]] inline Lane JoinHalves(const void* low, const void* high) {
  return _mm_unpacklo_epi64(LoadWord(low), LoadWord(high));
}

[[gnu::always_inline]] inline void StoreTwoWords(uint8_t* words, size_t stride, Lane value) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(words), value);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(words + stride), _mm_unpackhi_epi64(value, value));
}

// 16 bytes of each of two places.
[[gnu::always_inline]] inline __m256i LoadTwoLanes(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(LoadLane(low)), LoadLane(high), 1);
}

[[gnu::always_inline]] inline void StoreTwoLanes(void* low, void* high, __m256i value) {
  StoreLane(low, _mm256_castsi256_si128(value));
  StoreLane(high, _mm256_extracti128_si256(value, 1));
}

// Sums of 16-bit numbers.
[[gnu::always_inline]] inline int32_t TotalOfLane(Lane sum) {
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

// Adds up each two of unsigned or of signed bytes, each eight unsigned bytes, and each two of
// signed 16 bits.
[[gnu::always_inline]] inline Vector AddTwos(Vector bytes) {
  return PREPACK_MM(maddubs_epi16)(bytes, PREPACK_MM(set1_epi8)(1));
}

[[gnu::always_inline]] inline Vector AddSignedTwos(Vector bytes) {
  return PREPACK_MM(maddubs_epi16)(PREPACK_MM(set1_epi8)(1), bytes);
}

[[gnu::always_inline]] inline Vector AddEights(Vector bytes) {
  return PREPACK_MM(sad_epu8)(bytes, PREPACK_MM(set1_epi8)(0));
}

[[gnu::always_inline]] inline Vector AddFours(Vector twos) {
  return PREPACK_MM(madd_epi16)(twos, PREPACK_MM(set1_epi16)(1));
}

// The same eight bytes everywhere.
[[gnu::always_inline]] inline Vector RepeatWord(const void* from) {
  return PREPACK_MM(broadcastq_epi64)(LoadWord(from));
}

[[gnu::always_inline]] inline auto LoadHalf(const void* from) {
#ifdef PREPACK_AVX512
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
#else
  return LoadLane(from);
#endif
}

// Half a register of bytes in 16 bits each; then of signed ones, and of signed 16 bits in 32.
[[gnu::always_inline]] inline Vector WidenBytes(const void* from) {
  return PREPACK_MM(cvtepu8_epi16)(LoadHalf(from));
}

[[gnu::always_inline]] inline Vector WidenSigned(const void* from) {
  return PREPACK_MM(cvtepi8_epi16)(LoadHalf(from));
}

[[gnu::always_inline]] inline Vector WidenNumbers(const int16_t* from) {
  return PREPACK_MM(cvtepi16_epi32)(LoadHalf(from));
}

// The least of signed bytes.
[[gnu::always_inline]] inline int8_t LeastByteOf(Lane a, Lane b) {
  // Of unsigned 16 bits there is an instruction.
  Lane least = _mm_xor_si128(_mm_min_epi8(a, b), _mm_set1_epi8(-128));
  least = _mm_min_epu8(least, _mm_srli_epi16(least, 8));
  least = _mm_minpos_epu16(_mm_and_si128(least, _mm_set1_epi16(0xFF)));
  return static_cast<int8_t>((_mm_cvtsi128_si32(least) & 0xFF) ^ 0x80);
}

#ifdef PREPACK_AVX512

[[gnu::always_inline]] inline bool IsZero(Vector bits) {
  return _mm512_test_epi32_mask(bits, bits) == 0;
}

// Shuffles are the narrow place: CPUs do one a cycle, but two bitwise or masked operations and two
// loads beside it. So bytes of different rows are brought together while they are loaded, where
// that saves a shuffle, and a masked shuffle that exchanges bytes of two registers does the work of
// several. On Zen 4 a masked load of half a register or less counts as a shuffle, too: there, two
// halves cost as much as an exchange of lanes, and four lanes more.

// The same 16 bytes in every lane.
[[gnu::always_inline]] inline Vector Repeat(Lane lane) {
  return _mm512_broadcast_i32x4(lane);
}

// The bits of `a` where `mask` has ones, else those of `b`. The result takes the register of the
// first operand, which is best not the mask.
[[gnu::always_inline]] inline Vector Select(Vector mask, Vector a, Vector b) {
  return _mm512_ternarylogic_epi32(b, a, mask, 0xD8);
}

// 16 bytes in 32 bits each, as signed ones.
[[gnu::always_inline]] inline Vector WidenSignedToWords(const void* from) {
  return _mm512_cvtepi8_epi32(LoadLane(from));
}

[[gnu::always_inline]] inline int8_t LeastByte(Vector bytes) {
  const __m256i least =
      _mm256_min_epi8(_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64(bytes, 1));
  return LeastByteOf(_mm256_castsi256_si128(least), _mm256_extracti128_si256(least, 1));
}

// The sum of the lanes, of 32 bits each.
[[gnu::always_inline]] inline Lane SumLanes(Vector numbers) {
  const __m256i two =
      _mm256_add_epi32(_mm512_castsi512_si256(numbers), _mm512_extracti64x4_epi64(numbers, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
}

[[gnu::always_inline]] inline Vector SplitWords(const void* words) {
  const __m512i places = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m512i shifts = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
  const __m512i spread = _mm512_permutexvar_epi32(places, _mm512_castsi128_si512(LoadWord(words)));
  return _mm512_and_epi32(_mm512_srlv_epi32(spread, shifts), _mm512_set1_epi32(15));
}

[[gnu::always_inline]] inline Vector AddNeighbours(Vector a, Vector b) {
  const Vector even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const Vector odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                          _mm512_permutex2var_epi32(a, odd, b));
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
[[gnu::always_inline]] inline Vector JoinLanes(Lane a, Lane b, Lane c, Lane d) {
  __m512i lanes = _mm512_castsi128_si512(a);
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x00F0, b);
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x0F00, c);
  return _mm512_mask_broadcast_i32x4(lanes, 0xF000, d);
}

// Exchanges lane i of register j with lane j of register i.
[[gnu::always_inline]] inline void TransposeLanes(Vector& a, Vector& b, Vector& c, Vector& d) {
  const Vector ab_low = _mm512_shuffle_i32x4(a, b, 0x44);   // a0 a1 b0 b1
  const Vector ab_high = _mm512_shuffle_i32x4(a, b, 0xEE);  // a2 a3 b2 b3
  const Vector cd_low = _mm512_shuffle_i32x4(c, d, 0x44);
  const Vector cd_high = _mm512_shuffle_i32x4(c, d, 0xEE);
  a = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88);
  b = _mm512_shuffle_i32x4(ab_low, cd_low, 0xDD);
  c = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88);
  d = _mm512_shuffle_i32x4(ab_high, cd_high, 0xDD);
}

// Exchanges odd lanes of `a` with even lanes of `b`. Its own inverse.
[[gnu::always_inline]] inline void ExchangeLanes(Vector& a, Vector& b) {
  const __m512i even = _mm512_mask_shuffle_i64x2(a, 0xCC, b, b, 0xA0);
  b = _mm512_mask_shuffle_i64x2(b, 0x33, a, a, 0xF5);
  a = even;
}

#else

[[gnu::always_inline]] inline bool IsZero(Vector bits) {
  return _mm256_testz_si256(bits, bits) != 0;
}

[[gnu::always_inline]] inline Vector Repeat(Lane lane) {
  return _mm256_broadcastsi128_si256(lane);
}

[[gnu::always_inline]] inline Vector JoinLanes(Lane low, Lane high) {
  return _mm256_set_m128i(high, low);
}

[[gnu::always_inline]] inline Lane LowLane(Vector lanes) {
  return _mm256_castsi256_si128(lanes);
}

[[gnu::always_inline]] inline Lane HighLane(Vector lanes) {
  return _mm256_extracti128_si256(lanes, 1);
}

// The first lanes of both, and the second ones.
[[gnu::always_inline]] inline Vector FirstLanes(Vector a, Vector b) {
  return _mm256_permute2x128_si256(a, b, 0x20);
}

[[gnu::always_inline]] inline Vector SecondLanes(Vector a, Vector b) {
  return _mm256_permute2x128_si256(a, b, 0x31);
}

// Eight bytes of the first lane, eight of the second, and so on: halves 0, 2, 1, 3.
[[gnu::always_inline]] inline Vector ZipHalves(Vector lanes) {
  return _mm256_permute4x64_epi64(lanes, 0xD8);
}

// The sum of the lanes, of 32 bits each.
[[gnu::always_inline]] inline Lane SumLanes(Vector numbers) {
  return _mm_add_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
}

template <int... kNumbers>
[[gnu::always_inline]] inline Vector WordsOf() {
  return _mm256_setr_epi32(kNumbers...);
}

// Each 32 bits by its own number of bits.
[[gnu::always_inline]] inline Vector ShiftRightEach(Vector numbers, Vector bits) {
  return _mm256_srlv_epi32(numbers, bits);
}

// Eight bytes in 32 bits each, as signed ones.
[[gnu::always_inline]] inline Vector WidenSignedToWords(const void* from) {
  return _mm256_cvtepi8_epi32(LoadWord(from));
}

// Every second number of 32 bits of each lane of `a`, then of `b`: the first, third, … or the rest.
[[gnu::always_inline]] inline Vector EvenWords(Vector a, Vector b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}

[[gnu::always_inline]] inline Vector OddWords(Vector a, Vector b) {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xDD));
}

// Numbers of 16 bits below 256 as bytes, lane by lane: of `a`, then of `b`.
[[gnu::always_inline]] inline Vector PackBytes(Vector a, Vector b) {
  return _mm256_packus_epi16(a, b);
}

// The upper halves of the 32 bits of `a` and then of `b`.
[[gnu::always_inline]] inline Vector UpperHalves(Vector a, Vector b) {
  return ZipHalves(_mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16)));
}

// The sums of each two neighbours of 32 bits of `a` and then of `b`.
[[gnu::always_inline]] inline Vector AddNeighbours(Vector a, Vector b) {
  return ZipHalves(_mm256_hadd_epi32(a, b));
}

[[gnu::always_inline]] inline int8_t LeastByte(Vector bytes) {
  return LeastByteOf(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}

// a · b + c, rounded once.
[[gnu::always_inline]] inline Floats FuseFloats(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}

// Four numbers.
using Doubles = __m256d;

[[gnu::always_inline]] inline Doubles WidenFloats(const float* from) {
  return _mm256_cvtps_pd(_mm_loadu_ps(from));
}

[[gnu::always_inline]] inline Doubles Absolute(Doubles value) {
  return _mm256_andnot_pd(_mm256_set1_pd(-0.0), value);
}

// `then` where `value` is finite, else infinity.
[[gnu::always_inline]] inline Doubles WhereFinite(Doubles value, Doubles then) {
  const __m256d infinity = _mm256_set1_pd(__builtin_inf());
  return _mm256_blendv_pd(infinity, then, _mm256_cmp_pd(Absolute(value), infinity, _CMP_LT_OQ));
}

#endif

}  // namespace
}  // namespace prepack::PREPACK_LEVEL
