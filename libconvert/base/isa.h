#ifndef PREPACK_BASE_ISA_H_
#define PREPACK_BASE_ISA_H_

// Which instruction set our own packing kernels use. It changes speed only: every level writes the
// same bytes. (What a consumer's kernel needs is a property of its layout, see layouts/layout.h.)

#include <string_view>
#include <vector>

#include "base/result.h"

namespace prepack {

enum class Isa { kScalar, kAvx2 };

std::string_view IsaName(Isa isa);

// The levels that this CPU can run, slowest first; kScalar is always among them.
std::vector<Isa> SupportedIsas();

// The best supported level, or the one that PREPACK_ISA names. An unknown name is kUsage, one that
// this CPU cannot run is kUnavailable: never a crash, never a silent fallback.
Result<Isa> ChooseIsa();

}  // namespace prepack

#endif  // PREPACK_BASE_ISA_H_
