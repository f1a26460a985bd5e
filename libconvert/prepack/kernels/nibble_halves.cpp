// The scalar twin, which the others are compared with, and the choice between them.

#include "prepack/kernels/nibble_halves.h"

#include "prepack/base/isa.h"

namespace prepack {
namespace {

constexpr size_t kRowsApart = 16;  // between the rows of a byte

void RowsToHalves(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* halves) {
  for (size_t i = 0; i < cols / 2; ++i) {
    for (size_t n = 0; n < kRowsApart; ++n) {
      const unsigned low = rows[n * row_bytes + i];
      const unsigned high = rows[(n + kRowsApart) * row_bytes + i];
      uint8_t* to = halves + i * kHalvesRows + 2 * n;
      to[0] = static_cast<uint8_t>((low & 0x0FU) | (high & 0x0FU) << 4);
      to[1] = static_cast<uint8_t>(low >> 4 | (high & 0xF0U));
    }
  }
}

void HalvesToRows(const uint8_t* halves, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t i = 0; i < cols / 2; ++i) {
    for (size_t n = 0; n < kRowsApart; ++n) {
      const uint8_t* from = halves + i * kHalvesRows + 2 * n;
      const unsigned even = from[0];
      const unsigned odd = from[1];
      rows[n * row_bytes + i] = static_cast<uint8_t>((even & 0x0FU) | (odd & 0x0FU) << 4);
      rows[(n + kRowsApart) * row_bytes + i] = static_cast<uint8_t>(even >> 4 | (odd & 0xF0U));
    }
  }
}

}  // namespace

const NibbleHalves kNibbleHalvesScalar = {RowsToHalves, HalvesToRows};

const NibbleHalves& NibbleHalvesFor(Isa isa) {
  static constexpr IsaVersion<const NibbleHalves*> kVersions[] = {
      {Isa::kScalar, &kNibbleHalvesScalar},
      {Isa::kAvx2, &kNibbleHalvesAvx2},
      {Isa::kAvx512, &kNibbleHalvesAvx512},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
