#ifndef PREPACK_TESTS_EMULATED_AVX512_STAND_IN_XSIMD_XSIMD_HPP_
#define PREPACK_TESTS_EMULATED_AVX512_STAND_IN_XSIMD_XSIMD_HPP_

// Stands in for xsimd, and for the compiler's intrinsics, where the kernels for AVX-512 are
// compiled in portable code: SIMDe under the names of the intrinsics, and as much of a batch of
// xsimd over it as prepack/kernels/vectors.h uses.

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// SIMDe 0.7.4 gives this name four parameters, which are those of the masked one.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 simde_mm512_madd_epi16
// It has this one, but not under the name of the compiler.
#define _mm512_mask_shuffle_i64x2 simde_mm512_mask_shuffle_i64x2

// What SIMDe 0.7.4 does not have at all.
namespace prepack_stand_in {

// Applies `convert` to each of 16 elements.
template <typename To, typename From, typename Vector, typename Element, typename Convert>
To Each(const From& from, Convert convert) {
  Element in[16];
  Vector out[16];
  static_assert(sizeof(From) == sizeof in && sizeof(To) == sizeof out);
  __builtin_memcpy(in, &from, sizeof in);
  for (int i = 0; i < 16; ++i) out[i] = convert(in[i]);
  To to;
  __builtin_memcpy(&to, out, sizeof out);
  return to;
}

inline __m512 Int32ToFloat(__m512i numbers) {
  return Each<__m512, __m512i, float, int32_t>(
      numbers, [](int32_t number) { return static_cast<float>(number); });
}

// As the instruction, what an int32_t cannot hold becomes the smallest.
inline __m512i FloatToInt32(__m512 numbers) {
  return Each<__m512i, __m512, int32_t, float>(numbers, [](float number) {
    const bool fits = number >= -0x1p31F && number < 0x1p31F;
    return fits ? static_cast<int32_t>(number) : INT32_MIN;
  });
}

inline __m512i Int16ToInt32(__m256i numbers) {
  return Each<__m512i, __m256i, int32_t, int16_t>(
      numbers, [](int16_t number) { return static_cast<int32_t>(number); });
}

inline __m512i BytesToInt16(__m256i bytes) {
  return _mm512_and_si512(_mm512_cvtepi8_epi16(bytes), _mm512_set1_epi16(0xFF));
}

inline __m512i SignedBytesToInt32(__m128i bytes) {
  return Int16ToInt32(_mm256_cvtepi8_epi16(bytes));
}

}  // namespace prepack_stand_in

#define _mm512_cvtepi32_ps prepack_stand_in::Int32ToFloat
#define _mm512_cvttps_epi32 prepack_stand_in::FloatToInt32
#define _mm512_cvtepi16_epi32 prepack_stand_in::Int16ToInt32
#define _mm512_cvtepi8_epi32 prepack_stand_in::SignedBytesToInt32
#define _mm512_cvtepu8_epi16 prepack_stand_in::BytesToInt16

namespace xsimd {

struct avx512bw {};

template <typename T, typename Arch>
class batch {
 public:
  batch() = default;
  batch(__m512i reg) : reg_(reg) {}
  operator __m512i() const { return reg_; }

  static batch load_unaligned(const T* from) { return _mm512_loadu_si512(from); }
  void store_unaligned(T* to) const { _mm512_storeu_si512(to, reg_); }

 private:
  __m512i reg_;
};

namespace kernel {

template <typename Arch, typename T>
batch<T, Arch> bitwise_and(const batch<T, Arch>& a, const batch<T, Arch>& b, Arch /*arch*/) {
  return _mm512_and_si512(a, b);
}

template <typename Arch, typename T>
batch<T, Arch> bitwise_or(const batch<T, Arch>& a, const batch<T, Arch>& b, Arch /*arch*/) {
  return _mm512_or_si512(a, b);
}

template <typename Arch, typename T>
batch<T, Arch> bitwise_xor(const batch<T, Arch>& a, const batch<T, Arch>& b, Arch /*arch*/) {
  return _mm512_xor_si512(a, b);
}

}  // namespace kernel
}  // namespace xsimd

#endif  // PREPACK_TESTS_EMULATED_AVX512_STAND_IN_XSIMD_XSIMD_HPP_
