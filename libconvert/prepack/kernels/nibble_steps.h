#pragma once

// Brings eight rows of nibbles into the order of KleidiAI's kernels: in steps of 32 columns, with
// columns k and k + 16 in one byte, as two's complement:
//
//     rows     row n, byte k/2, low half when k is even       (8 rows of unsigned nibbles)
//     steps    byte (k mod 16)/8·64 + n·8 + k mod 8 of step k/32, low half when k mod 32 < 16;
//              nibbles XOR 8
//
// Steps lie in groups, and groups `stride` bytes apart; of what is between them nothing is touched.
// Rows have any alignment and lie anywhere, and several may be the same one, but where they are
// written.

#include <cstddef>
#include <cstdint>

namespace prepack {

inline constexpr size_t kNibbleStepRows = 8;
inline constexpr size_t kNibbleStepCols = 32;
inline constexpr size_t kNibbleStepRowBytes = kNibbleStepCols / 2;
inline constexpr size_t kNibbleStepBytes = kNibbleStepRows * kNibbleStepRowBytes;

struct StepGroups {
  size_t steps = 1;   // of a group
  size_t groups = 1;  // which follow each other in the rows
  size_t stride = 0;  // from one to the next in what is made of the rows
};

// sums[n] += code − 8 of all codes of row n, and wraps.
using RowsToStepsFn = void(const uint8_t* const* rows, const StepGroups& shape, uint8_t* steps,
                           int32_t* sums);
// sums[n] += (Σ (code − 8) of the 16 columns of a half step) · scales[group][n], half step by half
// step, each product rounded to f32 before it is added.
using RowsToScaledStepsFn = void(const uint8_t* const* rows, const StepGroups& shape,
                                 const float* scales, uint8_t* steps, float* sums);
using StepsToRowsFn = void(const uint8_t* steps, const StepGroups& shape, uint8_t* const* rows);

}  // namespace prepack
