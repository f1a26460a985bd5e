#pragma once

// Which instruction set our own packing kernels use. It changes speed only: every level writes the
// same bytes. (What a consumer's kernel needs is a property of its layout, see layouts/layout.h.)

#include <string_view>
#include <vector>

#include "prepack/base/status.h"

namespace prepack {

// On x86 a ladder: a CPU that has one level has all below it.
enum class Isa {
  kScalar,
  kAvx2,        // AVX2 and FMA: no CPU to speak of has one without the other
  kAvx512,      // AVX-512 F, BW, DQ and VL, which every server CPU with AVX-512 has
  kAvx512Vbmi,  // and VBMI, since Ice Lake and Zen 4
  kNeon,        // Advanced SIMD, which every 64-bit Arm CPU has
};

std::string_view IsaName(Isa isa);

// Whether this CPU, and its system, can run it. In a file of its own, which tests of emulated
// instructions replace.
bool CpuSupports(Isa isa);

// The levels that this CPU can run, slowest first; kScalar is always among them.
std::vector<Isa> SupportedIsas();

// The best supported level, or the one that PREPACK_ISA names. An unknown name is kUsage, one that
// this CPU cannot run is kUnavailable: never a crash, never a silent fallback.
Result<Isa> ChooseIsa();

// The instruction set that everything in this process uses: the best one, or that of PREPACK_ISA.
// Where PREPACK_ISA is wrong, commands say so before they touch weights; until then it is kScalar.
Isa ProcessIsa();

// Sets ProcessIsa() for all threads until it is destroyed: for tests and benchmarks, which make and
// destroy it while no other thread works. `isa` must be supported here.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa);
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  int before_;  // what it was
};

}  // namespace prepack
