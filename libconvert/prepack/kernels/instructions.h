// Included last of all headers but xsimd's or Eigen's, by files for one instruction set, which have
// defined PREPACK_AVX2 or PREPACK_AVX512 (and PREPACK_VBMI): from here on the compiler may use it.
// With PREPACK_NEON, which all files may use, these are headers like others.
//
// The headers of others are read before that, because their templates and inline functions are
// shared by the whole program, of whose copies the linker keeps any one. What comes behind lies in
// unnamed namespaces or in one of the instruction set, as our own code and `EigenAvx2` do, or has
// the instruction set in its types, as xsimd's. tests/kernels/symbols_test.py looks at what is left
// without inlining. Implicit constructors are an exception: g++ does not compile them for the
// pragma, so members have no initialisers that need registers.
//
// Clang ignores the pragma, and has options per file (CMakeLists.txt).

#ifndef PREPACK_KERNELS_INSTRUCTIONS_H_
#define PREPACK_KERNELS_INSTRUCTIONS_H_

#if defined(__GNUC__) && !defined(__clang__)
// The intrinsics of g++ 12 take registers that were never set where the value does not matter.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#ifndef PREPACK_NEON
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iosfwd>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <ostream>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Tests emulate AVX-512 with a stand-in for xsimd and the intrinsics (tests/emulated_avx512). Use
// only what SIMDe 0.7.4 has.
#if !defined(PREPACK_EMULATE_AVX512) && !defined(PREPACK_NEON)

#if defined(__GNUC__) && !defined(__clang__)
#if defined(PREPACK_VBMI)
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,prefer-vector-width=512")
#elif defined(PREPACK_AVX512)
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#else
#pragma GCC target("avx2,fma")
#endif
#endif

// xsimd and Eigen ask these macros what there is, and g++ does not define them for a pragma.
#ifndef __AVX2__
#define __SSE3__ 1
#define __SSSE3__ 1
#define __SSE4_1__ 1
#define __SSE4_2__ 1
#define __AVX__ 1
#define __AVX2__ 1
#define __FMA__ 1
#endif
#if defined(PREPACK_AVX512) && !defined(__AVX512F__)
#define __AVX512F__ 1
#define __AVX512DQ__ 1
#define __AVX512BW__ 1
#endif
#if defined(PREPACK_AVX512) && !defined(__AVX512CD__)
#define __AVX512CD__ 1  // asked for by xsimd, whose part of it is empty
#endif

#endif

#endif  // PREPACK_KERNELS_INSTRUCTIONS_H_
