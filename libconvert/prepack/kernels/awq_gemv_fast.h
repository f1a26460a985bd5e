#ifndef PREPACK_KERNELS_AWQ_GEMV_FAST_H_
#define PREPACK_KERNELS_AWQ_GEMV_FAST_H_

// Codes of AWQ's GEMV_FAST layout, which llm-awq writes too (mirrors AutoAWQ 0.2.9,
// awq/modules/linear/gemv_fast.py: pack_intweight).
//
// Four output channels by 64 input channels are one chunk of 128 bytes: 32 for each channel, which
// hold two runs of 32 inputs. In a run of 16 bytes, 16-bit number r holds inputs r, r + 8, r + 16
// and r + 24, lowest bits first:
//
//     stored    0|8  16|24   1|9  17|25   …   7|15  23|31     (bytes as low nibble|high nibble)
//     unpacked  0|1   2|3    4|5   6|7    …  28|29  30|31
//
// So a run is a matrix of 8 × 4 nibbles, and unpacking transposes it.

#include <cstddef>
#include <cstdint>

#include "prepack/base/isa.h"

namespace prepack {

inline constexpr size_t kGemvFastRows = 4;
inline constexpr size_t kGemvFastCols = 64;
inline constexpr size_t kGemvFastRowBytes = kGemvFastCols / 2;
inline constexpr size_t kGemvFastChunkBytes = kGemvFastRows * kGemvFastRowBytes;

// Unpacks one channel of `chunks` chunks: reads 32 bytes at `stored`, 128 bytes apart, and writes
// them, unpacked, without gaps.
using UnpackGemvFastFn = void (*)(const uint8_t* stored, size_t chunks, uint8_t* unpacked);

// The version for one instruction set, which must be supported here. All write the same bytes.
UnpackGemvFastFn UnpackGemvFastFor(Isa isa = ProcessIsa());

void UnpackGemvFastScalar(const uint8_t* stored, size_t chunks, uint8_t* unpacked);
void UnpackGemvFastAvx2(const uint8_t* stored, size_t chunks, uint8_t* unpacked);
void UnpackGemvFastAvx512(const uint8_t* stored, size_t chunks, uint8_t* unpacked);

}  // namespace prepack

#endif  // PREPACK_KERNELS_AWQ_GEMV_FAST_H_
