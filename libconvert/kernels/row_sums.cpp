// The scalar twin, which the others are compared with, and the choice between them.

#include "kernels/row_sums.h"

#include "base/isa_versions.h"

namespace prepack {
namespace {

void SumBytes(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols, int32_t* sums) {
  for (size_t r = 0; r < row_count; ++r) {
    const int8_t* row = rows + r * row_stride;
    int32_t sum = 0;
    for (size_t k = 0; k < cols; ++k) sum += row[k];
    sums[r] += sum;
  }
}

void SumNibbles(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t cols,
                int32_t* sums) {
  for (size_t r = 0; r < row_count; ++r) {
    const uint8_t* row = rows + r * row_bytes;
    int32_t sum = 0;
    for (size_t i = 0; i < cols / 2; ++i) sum += (row[i] & 0x0F) + (row[i] >> 4);
    sums[r] += sum;
  }
}

}  // namespace

const RowSums kRowSumsScalar = {SumBytes, SumNibbles};

const RowSums& RowSumsFor(Isa isa) {
  static constexpr IsaVersion<const RowSums*> kVersions[] = {
      {Isa::kScalar, &kRowSumsScalar},
      {Isa::kAvx2, &kRowSumsAvx2},
      {Isa::kAvx512, &kRowSumsAvx512},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
