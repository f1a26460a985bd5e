#ifndef PREPACK_KERNELS_AVX512_INTRINSICS_H_
#define PREPACK_KERNELS_AVX512_INTRINSICS_H_

// The intrinsics of AVX-512: those of the compiler or, for tests on CPUs without it, the emulation
// by SIMDe under the same names (tests/emulated_avx512). Use only what SIMDe 0.7.4 has.

#ifdef PREPACK_EMULATE_AVX512
#define SIMDE_ENABLE_NATIVE_ALIASES

#include <simde/x86/avx512.h>

// SIMDe 0.7.4 gives this name four parameters, which are those of the masked one.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 simde_mm512_madd_epi16
// It has this one, but not under the name of the compiler.
#define _mm512_mask_shuffle_i64x2 simde_mm512_mask_shuffle_i64x2
#else
#include <immintrin.h>
#endif

#endif  // PREPACK_KERNELS_AVX512_INTRINSICS_H_
