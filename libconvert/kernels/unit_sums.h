#ifndef PREPACK_KERNELS_UNIT_SUMS_H_
#define PREPACK_KERNELS_UNIT_SUMS_H_

// Sums of the codes of output channels that lie in units of four bytes side by side, as
// dot-product instructions read them (layouts/unit_blocks.h):
//
//     code j of channel n    byte (j / 4) · step + 4 · n + j mod 4
//
// The sum of channel n is added to sums[n]; that what is in `sums` leaves room for it is the
// caller's business. Where codes have just been packed they are still in the L1 cache, so this is
// cheaper than to go through their rows (row_sums.h) once more.

#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace prepack {

// So many units at most in one call: with more, sums of 16 bits on the way could overflow.
inline constexpr size_t kMaxSumUnits = 128;

using SumUnitsFn = void (*)(const int8_t* units, size_t step, size_t count, size_t channels,
                            int32_t* sums);

// The version for one instruction set; `isa` must be supported here.
SumUnitsFn SumUnitsFor(Isa isa);

// One function per instruction set, each in a file of its own that is compiled for it.
void SumUnitsScalar(const int8_t* units, size_t step, size_t count, size_t channels, int32_t* sums);
void SumUnitsAvx2(const int8_t* units, size_t step, size_t count, size_t channels, int32_t* sums);
void SumUnitsAvx512(const int8_t* units, size_t step, size_t count, size_t channels, int32_t* sums);

}  // namespace prepack

#endif  // PREPACK_KERNELS_UNIT_SUMS_H_
