#include "kernels/awq_gemm.h"

#include <cstring>

namespace prepack {
namespace {

constexpr size_t kWordBytes = 4;
constexpr size_t kPairBytes = 2 * kWordBytes;
constexpr size_t kRowBytes = kAwqTileCols / 2;

}  // namespace

void UnpackAwqTile(const NibbleTranspose& transpose, const uint8_t* words, size_t stride,
                   size_t word_count, size_t cols, const AwqTileRows& rows) {
  // Left uninitialised: what is read of them is written first.
  std::array<uint8_t, kAwqTileCols * kPairBytes> columns;
  std::array<uint8_t, kTransposeRows * kRowBytes> unpacked;
  if (word_count == 2) {
    for (size_t k = 0; k < cols; ++k) {
      std::memcpy(columns.data() + k * kPairBytes, words + k * stride, kPairBytes);
    }
  } else {
    for (size_t k = 0; k < cols; ++k) {
      std::memcpy(columns.data() + k * kPairBytes, words + k * stride, kWordBytes);
      std::memset(columns.data() + k * kPairBytes + kWordBytes, 0, kWordBytes);
    }
  }
  const size_t even_cols = cols + cols % 2;
  if (even_cols != cols) std::memset(columns.data() + cols * kPairBytes, 0, kPairBytes);
  // AWQ's order of nibbles only permutes the rows that come out: they are put in order as they are
  // copied, which costs less than sorting the nibbles of every word.
  transpose.columns_to_rows(columns.data(), even_cols, kRowBytes, unpacked.data());
  for (unsigned nibble = 0; nibble < kTransposeRows; ++nibble) {
    uint8_t* row = rows[nibble / 8 * 8 + AwqChannel(nibble % 8)];
    if (row != nullptr) std::memcpy(row, unpacked.data() + nibble * kRowBytes, even_cols / 2);
  }
}

}  // namespace prepack
