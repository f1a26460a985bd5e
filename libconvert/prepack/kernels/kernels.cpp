// The choice between the versions of the kernels.

#include "prepack/kernels/kernels.h"

namespace prepack {
namespace {

constexpr KernelTable kScalar = {
#define PREPACK_KERNEL(type, function, member, avx512, avx512vbmi) scalar::function,
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
};

#if defined(__x86_64__)

#define PREPACK_VERSION_0(function) nullptr
#define PREPACK_VERSION_1(function) function

// A table of `own` versions, with those of the level below where it has none.
constexpr KernelTable OnTopOf(const KernelTable& below, KernelTable own) {
#define PREPACK_KERNEL(type, function, member, avx512, avx512vbmi) \
  if (own.member == nullptr) own.member = below.member;
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
  return own;
}

constexpr KernelTable kAvx2 = {
#define PREPACK_KERNEL(type, function, member, avx512, avx512vbmi) avx2::function,
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
};

constexpr KernelTable kAvx512 = OnTopOf(kAvx2, {
#define PREPACK_KERNEL(type, function, member, has_avx512, avx512vbmi) \
  PREPACK_VERSION_##has_avx512(avx512::function),
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
                                               });

constexpr KernelTable kAvx512Vbmi = OnTopOf(kAvx512, {
#define PREPACK_KERNEL(type, function, member, avx512, has_avx512vbmi) \
  PREPACK_VERSION_##has_avx512vbmi(avx512vbmi::function),
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
                                                     });

// In the order of Isa.
constexpr KernelTable kLevels[] = {kScalar, kAvx2, kAvx512, kAvx512Vbmi};

#elif defined(__aarch64__)

constexpr KernelTable kNeon = {
#define PREPACK_KERNEL(type, function, member, avx512, avx512vbmi) neon::function,
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
};

#endif

}  // namespace

const KernelTable& KernelsFor(Isa isa) {
#if defined(__x86_64__)
  return kLevels[static_cast<size_t>(isa)];
#elif defined(__aarch64__)
  return isa == Isa::kNeon ? kNeon : kScalar;
#else
  return kScalar;
#endif
}

TransposeUnitsFn* TransposeUnits(const KernelTable& kernels, size_t unit_bytes) {
  switch (unit_bytes) {
    case 1:
      return kernels.transpose_bytes;
    case 2:
      return kernels.transpose_pairs;
    case 4:
      return kernels.transpose_words;
    default:
      return kernels.transpose_doubles;
  }
}

}  // namespace prepack
