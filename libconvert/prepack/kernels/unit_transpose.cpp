// The scalar twin, which the others are compared with, and the choice between them.

#include "prepack/kernels/unit_transpose.h"

#include <cassert>
#include <cstring>

#include "prepack/base/isa.h"

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

void TransposeSummed(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                     std::byte* out, size_t out_stride, int32_t* sums) {
  Transpose<4>(in, in_stride, rows, cols, out, out_stride);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < 4 * cols; ++i) sums[r] += static_cast<int8_t>(in[r * in_stride + i]);
  }
}

}  // namespace

const UnitTranspose kUnitTransposeScalar = {Transpose<1>, Transpose<2>, Transpose<4>, Transpose<8>,
                                            TransposeSummed};

const UnitTranspose& UnitTransposeFor(Isa isa) {
  static constexpr IsaVersion<const UnitTranspose*> kVersions[] = {
      {Isa::kScalar, &kUnitTransposeScalar},
      {Isa::kAvx2, &kUnitTransposeAvx2},
      {Isa::kAvx512, &kUnitTransposeAvx512},
  };
  return *BestVersion(kVersions, isa);
}

TransposeUnitsFn TransposeUnitsFor(size_t unit_bytes, Isa isa) {
  const UnitTranspose& transpose = UnitTransposeFor(isa);
  switch (unit_bytes) {
    case 1:
      return transpose.bytes;
    case 2:
      return transpose.pairs;
    case 4:
      return transpose.words;
    default:
      assert(unit_bytes == 8);
      return transpose.doubles;
  }
}

}  // namespace prepack
