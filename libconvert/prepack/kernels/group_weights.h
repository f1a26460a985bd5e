#pragma once

// What groups of codes are as weights, for `check`: sums over codes c become sums over weights
// (c − z)·s. Every version gives the same bits.

#include <cstddef>
#include <cstdint>

namespace prepack {

// Takes apart what SumNibbles made of each group: `sums` has (Σ low + Σ high − less) · unit, and
// `squares` Σ both · unit².
struct GroupUnits {
  int32_t less = 0;
  double unit = 1;
};
using SplitGroupSumsFn = void(const uint64_t* groups, size_t count, const GroupUnits& units,
                              double* sums, double* squares);

struct GroupNumbers {
  const float* scales;
  const uint8_t* zero_points;
  double codes;  // in each group
};
// By group. Values are doubles that codes of FP4 and integers do not round.
struct GroupSums {
  double* sums;            // Σ c, which becomes Σ (c − z)·s
  double* squares;         // Σ c², which becomes Σ (c − z)²
  double* weight_squares;  // becomes Σ (c − z)²·s²
  // Become log2 |s|, and log2 of the root of the mean of (c − z)², with straight lines between
  // powers of two: at most 0.09 too low, which is good enough to compare spreads and takes a tenth
  // of the time. Both are 0 for a group without weights.
  double* scale_logs;
  double* code_logs;
};
// Returns how many of the groups have weights.
using WeighGroupsFn = size_t(const GroupNumbers& groups, size_t count, const GroupSums& sums);

}  // namespace prepack
