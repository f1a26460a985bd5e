// The reference for AVX2 and FMA, for which Eigen has another name; see reference_product.h.

#include "prepack/gemm/reference.h"

#define PREPACK_AVX2
#include "prepack/kernels/instructions.h"

#define Eigen EigenAvx2
#include "prepack/gemm/reference_product.h"

namespace prepack {

void ReferenceProductAvx2(uint64_t m, uint64_t n, uint64_t k, const double* x, const double* w,
                          double* y) {
  Product(m, n, k, x, w, y);
}

}  // namespace prepack
