// The scalar twin, which the others are compared with, and the choice between them.

#include "kernels/unit_sums.h"

#include "base/isa_versions.h"

namespace prepack {

void SumUnitsScalar(const int8_t* units, size_t step, size_t count, size_t channels,
                    int32_t* sums) {
  for (size_t u = 0; u < count; ++u) {
    const int8_t* unit = units + u * step;
    for (size_t n = 0; n < channels; ++n) {
      sums[n] += unit[4 * n] + unit[4 * n + 1] + unit[4 * n + 2] + unit[4 * n + 3];
    }
  }
}

SumUnitsFn SumUnitsFor(Isa isa) {
  static constexpr IsaVersion<SumUnitsFn> kVersions[] = {
      {Isa::kScalar, SumUnitsScalar},
      {Isa::kAvx2, SumUnitsAvx2},
      {Isa::kAvx512, SumUnitsAvx512},
  };
  return BestVersion(kVersions, isa);
}

}  // namespace prepack
