#ifndef PREPACK_GEMM_DEQUANTIZE_ROW_H_
#define PREPACK_GEMM_DEQUANTIZE_ROW_H_

#include <cstdint>
#include <span>

#include "gemm/engine.h"

namespace prepack {

// weights[k] = (code − zero point) · scale in f32, for output channel n of the problem.
inline void DequantizeRow(const W4A16Problem& problem, uint64_t n, std::span<float> weights) {
  const uint64_t groups = problem.k / problem.group_size;
  for (uint64_t k = 0; k < problem.k; ++k) {
    const auto byte = std::to_integer<unsigned>(problem.codes[(n * problem.k + k) / 2]);
    const int code = static_cast<int>(k % 2 == 0 ? byte & 15U : byte >> 4);
    const uint64_t group = n * groups + k / problem.group_size;
    const int zero_point = problem.zero_points.empty() ? 8 : problem.zero_points[group];
    weights[k] = static_cast<float>(code - zero_point) * problem.scales[group];
  }
}

}  // namespace prepack

#endif  // PREPACK_GEMM_DEQUANTIZE_ROW_H_
