#ifndef PREPACK_GEMM_REFERENCE_AVX2_H_
#define PREPACK_GEMM_REFERENCE_AVX2_H_

#include <cstdint>

namespace prepack {

// ReferenceGemm of reference.h with AVX2 and FMA.
void ReferenceProductAvx2(uint64_t m, uint64_t n, uint64_t k, const double* x, const double* w,
                          double* y);

}  // namespace prepack

#endif  // PREPACK_GEMM_REFERENCE_AVX2_H_
