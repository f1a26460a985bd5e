// The scalar twin, which the others are compared with, and the choice between them.

#include "prepack/kernels/row_sums.h"

#include "prepack/base/isa.h"

namespace prepack {

void SumRowsScalar(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols,
                   int32_t* sums) {
  for (size_t r = 0; r < row_count; ++r) {
    const int8_t* row = rows + r * row_stride;
    int32_t sum = 0;
    for (size_t k = 0; k < cols; ++k) sum += row[k];
    sums[r] += sum;
  }
}

SumRowsFn SumRowsFor(Isa isa) {
  static constexpr IsaVersion<SumRowsFn> kVersions[] = {
      {Isa::kScalar, SumRowsScalar},
      {Isa::kAvx2, SumRowsAvx2},
      {Isa::kAvx512, SumRowsAvx512},
  };
  return BestVersion(kVersions, isa);
}

}  // namespace prepack
