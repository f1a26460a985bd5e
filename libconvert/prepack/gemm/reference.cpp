#include "prepack/gemm/reference.h"

#include "prepack/base/isa.h"
#include "prepack/gemm/reference_product.h"

namespace prepack {

void ReferenceGemm(uint64_t m, uint64_t n, uint64_t k, std::span<const double> x,
                   std::span<const double> w, std::span<double> y) {
  const Isa isa = ProcessIsa();
  const auto product = isa < Isa::kAvx2     ? Product
                       : isa < Isa::kAvx512 ? ReferenceProductAvx2
                                            : ReferenceProductAvx512;
  product(m, n, k, x.data(), w.data(), y.data());
}

}  // namespace prepack
