// The reference for AVX-512, for which Eigen has another name; see reference_product.h.

#include "prepack/gemm/reference.h"

#define PREPACK_AVX512
#include "prepack/kernels/instructions.h"

#define Eigen EigenAvx512
#include "prepack/gemm/reference_product.h"

namespace prepack {

void ReferenceProductAvx512(uint64_t m, uint64_t n, uint64_t k, const double* x, const double* w,
                            double* y) {
  Product(m, n, k, x, w, y);
}

}  // namespace prepack
