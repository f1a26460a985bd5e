// The scalar twin, which the others are compared with, and the choice between them.

#include "kernels/nibble_pairs.h"

#include "base/isa_versions.h"

namespace prepack {
namespace {

constexpr size_t kApart = 8;  // between the channels of a byte

// The first of the two channels in the i-th byte of a column.
constexpr size_t LowChannel(size_t i) {
  return i / kApart * 2 * kApart + i % kApart;
}

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  for (size_t i = 0; i < kPairRows / 2; ++i) {
    const uint8_t* low = rows + LowChannel(i) * row_bytes;
    const uint8_t* high = low + kApart * row_bytes;
    for (size_t k = 0; k < cols; k += 2) {
      uint8_t* to = pairs + k / kPairCols * kPairStepBytes + i * kPairCols + k % kPairCols;
      const unsigned a = low[k / 2];
      const unsigned b = high[k / 2];
      to[0] = static_cast<uint8_t>((a & 0x0FU) | (b & 0x0FU) << 4);
      to[1] = static_cast<uint8_t>(a >> 4 | (b & 0xF0U));
    }
  }
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t i = 0; i < kPairRows / 2; ++i) {
    uint8_t* low = rows + LowChannel(i) * row_bytes;
    uint8_t* high = low + kApart * row_bytes;
    for (size_t k = 0; k < cols; k += 2) {
      const uint8_t* from = pairs + k / kPairCols * kPairStepBytes + i * kPairCols + k % kPairCols;
      const unsigned even = from[0];
      const unsigned odd = from[1];
      low[k / 2] = static_cast<uint8_t>((even & 0x0FU) | (odd & 0x0FU) << 4);
      high[k / 2] = static_cast<uint8_t>(even >> 4 | (odd & 0xF0U));
    }
  }
}

}  // namespace

const NibblePairs kNibblePairsScalar = {RowsToPairs, PairsToRows};

const NibblePairs& NibblePairsFor(Isa isa) {
  static constexpr IsaVersion<const NibblePairs*> kVersions[] = {
      {Isa::kScalar, &kNibblePairsScalar},
      {Isa::kAvx2, &kNibblePairsAvx2},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
