#include "prepack/gemm/reference.h"

#include "prepack/base/isa.h"
#include "prepack/gemm/reference_product.h"

namespace prepack {

void ReferenceGemm(uint64_t m, uint64_t n, uint64_t k, std::span<const double> x,
                   std::span<const double> w, std::span<double> y) {
  auto product = Product;
#ifdef __x86_64__
  const Isa isa = ProcessIsa();
  if (isa >= Isa::kAvx2)
    product = isa < Isa::kAvx512 ? ReferenceProductAvx2 : ReferenceProductAvx512;
#endif
  product(m, n, k, x.data(), w.data(), y.data());
}

}  // namespace prepack
