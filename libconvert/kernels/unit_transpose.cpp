// The scalar twin, which the others are compared with, and the choice between them.

#include "kernels/unit_transpose.h"

#include <cassert>
#include <cstring>

#include "base/isa_versions.h"

namespace prepack {
namespace {

template <size_t kUnit>
void Transpose(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
               size_t out_stride) {
  for (size_t c = 0; c < cols; ++c) {
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(out + c * out_stride + r * kUnit, in + r * in_stride + c * kUnit, kUnit);
    }
  }
}

}  // namespace

const UnitTranspose kUnitTransposeScalar = {Transpose<1>, Transpose<2>, Transpose<4>};

const UnitTranspose& UnitTransposeFor(Isa isa) {
  static constexpr IsaVersion<const UnitTranspose*> kVersions[] = {
      {Isa::kScalar, &kUnitTransposeScalar},
      {Isa::kAvx2, &kUnitTransposeAvx2},
      {Isa::kAvx512, &kUnitTransposeAvx512},
  };
  return *BestVersion(kVersions, isa);
}

TransposeUnitsFn TransposeUnitsFor(Isa isa, size_t unit_bytes) {
  assert(unit_bytes == 1 || unit_bytes == 2 || unit_bytes == 4);
  const UnitTranspose& transpose = UnitTransposeFor(isa);
  if (unit_bytes == 1) return transpose.bytes;
  return unit_bytes == 2 ? transpose.pairs : transpose.words;
}

}  // namespace prepack
