#pragma once

// The bodies of group_weights.h: plain loops, which the compiler vectorises for each level.

namespace prepack::PREPACK_LEVEL {

namespace {

inline double RoughLog2(float value) {
  int32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits * 0x1p-23 - 127;
}

}  // namespace

void SplitGroupSums(const uint64_t* groups, size_t count, const GroupUnits& units, double* sums,
                    double* squares) {
  const auto [less, unit] = units;
  const double square = unit * unit;
  for (size_t i = 0; i < count; ++i) {
    const auto places = static_cast<int32_t>(groups[i]);
    const auto both = static_cast<int32_t>(groups[i] >> 32);
    sums[i] = ((places & 0xFFFF) + (places >> 16 & 0xFFFF) - less) * unit;
    squares[i] = both * square;
  }
}

// Two loops, because with more arrays compilers give up proving that none overlap.
size_t WeighGroups(const GroupNumbers& groups, size_t count, const GroupSums& of) {
  const auto [scales, zero_points, codes] = groups;
  const auto [sums, squares, weight_squares, scale_logs, code_logs] = of;
  for (size_t i = 0; i < count; ++i) {
    const double zero = zero_points[i];
    const double sum = sums[i];
    squares[i] = squares[i] - 2 * zero * sum + codes * zero * zero;
    sums[i] = scales[i] * (sum - codes * zero);
  }
  int32_t with_weights = 0;
  for (size_t i = 0; i < count; ++i) {
    const double scale = scales[i];
    weight_squares[i] = scale * scale * squares[i];
    // 1 or 0 to multiply by: what is computed under a condition is not vectorised.
    const double counts = (squares[i] > 0 ? 1.0 : 0.0) * (scale != 0 ? 1.0 : 0.0);
    scale_logs[i] = RoughLog2(__builtin_fabsf(scales[i])) * counts;
    code_logs[i] = RoughLog2(static_cast<float>(squares[i] / codes)) / 2 * counts;
    with_weights += static_cast<int32_t>(counts);
  }
  return static_cast<size_t>(with_weights);
}

}  // namespace prepack::PREPACK_LEVEL
