#include "prepack/gemm/reference.h"

#include "prepack/base/isa.h"
#include "prepack/gemm/reference_product.h"

namespace prepack {

void ReferenceGemm(uint64_t m, uint64_t n, uint64_t k, std::span<const double> x,
                   std::span<const double> w, std::span<double> y) {
  const auto product = ProcessIsa() < Isa::kAvx2 ? Product : ReferenceProductAvx2;
  product(m, n, k, x.data(), w.data(), y.data());
}

}  // namespace prepack
