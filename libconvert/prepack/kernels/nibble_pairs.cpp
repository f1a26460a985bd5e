// The scalar twin, which the others are compared with, and the choice between them.

#include "prepack/kernels/nibble_pairs.h"

#include <cstring>

#include "prepack/base/isa.h"

namespace prepack {
namespace {

constexpr size_t kApart = 8;  // between the channels of a byte

// The first of the two channels in the i-th byte of a column.
constexpr size_t LowChannel(size_t i) {
  return i / kApart * 2 * kApart + i % kApart;
}

void RowsToBlock(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
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

void BlockToRows(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
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

int32_t SumRow(const uint8_t* row, size_t cols) {
  int32_t sum = 0;
  for (size_t i = 0; i < cols / 2; ++i) sum += (row[i] & 0x0F) + (row[i] >> 4);
  return sum;
}

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                 uint8_t* pairs) {
  for (size_t block = 0; block < blocks; ++block) {
    RowsToBlock(rows, row_bytes, cols, pairs);
    for (size_t n = 0; n < kPairRows; ++n) {
      const int32_t sum = SumRow(rows + n * row_bytes, cols);
      std::memcpy(pairs + PairCodeBytes(cols) + n * sizeof sum, &sum, sizeof sum);
    }
    rows += cols / 2;
    pairs += PairBlockBytes(cols);
  }
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  for (size_t block = 0; block < blocks; ++block) {
    BlockToRows(pairs, cols, row_bytes, rows);
    rows += cols / 2;
    pairs += PairBlockBytes(cols);
  }
}

}  // namespace

const NibblePairs kNibblePairsScalar = {RowsToPairs, PairsToRows};

const NibblePairs& NibblePairsFor(Isa isa) {
  static constexpr IsaVersion<const NibblePairs*> kVersions[] = {
      {Isa::kScalar, &kNibblePairsScalar},
      {Isa::kAvx2, &kNibblePairsAvx2},
      {Isa::kAvx512, &kNibblePairsAvx512},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
