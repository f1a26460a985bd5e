// Takes the place of libconvert/prepack/base/cpu_supports.cpp in programs whose AVX-512 is
// emulated: there every CPU has it. Its kernels leave what is too small for them to AVX2, which is
// not emulated.

#include "prepack/base/isa.h"

namespace prepack {

bool CpuSupports(Isa isa) {
  if (isa == Isa::kScalar || isa == Isa::kNeon) return isa == Isa::kScalar;
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

}  // namespace prepack
