#pragma once

// The truth that results are compared with: f64 throughout (Eigen).

#include <cstdint>
#include <span>

namespace prepack {

// y[M, N] = x[M, K] · w[N, K]ᵀ, all row-major f64. ProcessIsa() decides how fast this is, and how
// the last bits are rounded. Works on the calling thread.
void ReferenceGemm(uint64_t m, uint64_t n, uint64_t k, std::span<const double> x,
                   std::span<const double> w, std::span<double> y);

// The same with the instructions of one set, AVX2 (with FMA) or AVX-512.
void ReferenceProductAvx2(uint64_t m, uint64_t n, uint64_t k, const double* x, const double* w,
                          double* y);
void ReferenceProductAvx512(uint64_t m, uint64_t n, uint64_t k, const double* x, const double* w,
                            double* y);

}  // namespace prepack
