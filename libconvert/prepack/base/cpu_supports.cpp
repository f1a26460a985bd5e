#include "prepack/base/isa.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cstdint>

namespace prepack {

#ifdef __x86_64__

namespace {

// What a leaf of CPUID says; zeros where the CPU has no such leaf. Not __builtin_cpu_supports:
// without libgcc, as in programs that zig links, it finds no feature at all.
struct CpuLeaf {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;

  explicit CpuLeaf(unsigned number) { __get_cpuid_count(number, 0, &eax, &ebx, &ecx, &edx); }
};

constexpr bool HasAll(uint64_t bits, uint64_t wanted) {
  return (bits & wanted) == wanted;
}

// Which registers the system saves when it switches threads (XCR0).
uint64_t SavedRegisters() {
  if (!HasAll(CpuLeaf(1).ecx, bit_OSXSAVE)) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

constexpr uint64_t kSavesYmm = 0x06;
constexpr uint64_t kSavesZmm = 0xE6;

bool HasAvx2() {
  return HasAll(SavedRegisters(), kSavesYmm) && HasAll(CpuLeaf(1).ecx, bit_AVX | bit_FMA) &&
         HasAll(CpuLeaf(7).ebx, bit_AVX2);
}

bool HasAvx512() {
  constexpr uint64_t kWanted = uint64_t{bit_AVX512F} | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  return HasAvx2() && HasAll(SavedRegisters(), kSavesZmm) && HasAll(CpuLeaf(7).ebx, kWanted);
}

}  // namespace

bool CpuSupports(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return HasAvx2();
    case Isa::kAvx512:
      return HasAvx512();
    case Isa::kAvx512Vbmi:
      return HasAvx512() && HasAll(CpuLeaf(7).ecx, bit_AVX512VBMI);
    case Isa::kNeon:
      return false;
  }
  return false;
}

#else

bool CpuSupports(Isa isa) {
#ifdef __aarch64__
  if (isa == Isa::kNeon) return true;  // no Linux for it runs without
#endif
  return isa == Isa::kScalar;
}

#endif

}  // namespace prepack
