// The versions for any CPU, and the choice between the versions.

#include "prepack/kernels/strip_products.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "prepack/base/isa.h"

namespace prepack {
namespace {

void Floats(std::span<const FloatStripRow> rows, const float* w, size_t count) {
  for (const FloatStripRow& row : rows) {
    std::array<float, kStripChannels> sums;  // a copy, which cannot overlap with w
    std::copy_n(row.sums, kStripChannels, sums.begin());
    for (size_t k = 0; k < count; ++k) {
      for (size_t i = 0; i < kStripChannels; ++i) sums[i] += row.x[k] * w[k * kStripChannels + i];
    }
    std::ranges::copy(sums, row.sums);
  }
}

void Pairs(std::span<const PairStripRow> rows, const int16_t* w, size_t count) {
  for (const PairStripRow& row : rows) {
    std::array<uint32_t, kStripChannels> sums;  // unsigned: they wrap
    std::copy_n(row.sums, kStripChannels, sums.begin());
    for (size_t k = 0; k < count; ++k) {
      const int16_t* pairs = w + 2 * k * kStripChannels;
      for (size_t i = 0; i < kStripChannels; ++i) {
        sums[i] += static_cast<uint32_t>(row.x[2 * k] * pairs[2 * i] +
                                         row.x[2 * k + 1] * pairs[2 * i + 1]);
      }
    }
    std::ranges::copy(sums, row.sums);
  }
}

void Fuse(const float* a, const float* b, size_t count, float* sums) {
  for (size_t i = 0; i < count; ++i) sums[i] = std::fma(a[i], b[i], sums[i]);
}

}  // namespace

const StripProducts kStripProductsScalar = {.floats = Floats, .pairs = Pairs, .fuse = Fuse};

const StripProducts& StripProductsFor(Isa isa) {
  static constexpr IsaVersion<const StripProducts*> kVersions[] = {
      {Isa::kScalar, &kStripProductsScalar},
      {Isa::kAvx2, &kStripProductsAvx2},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
