// The version for any CPU: eight channels at a time, in the order of the channels. And the choice
// between the versions.

#include "prepack/kernels/nibble_columns.h"

#include <bit>
#include <cstring>
#include <utility>

#include "prepack/base/isa.h"
#include "prepack/kernels/awq_gemm.h"

namespace prepack {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr size_t kSide = 8;

// Exchanges blocks of kWidth × kWidth nibbles across the diagonal of 8 × 8.
template <size_t kWidth>
void SwapBlocks(uint32_t (&words)[kSide], uint32_t mask) {
  for (size_t i = 0; i < kSide; ++i) {
    if ((i & kWidth) != 0) continue;
    const uint32_t moved = ((words[i] >> 4 * kWidth) ^ words[i + kWidth]) & mask;
    words[i + kWidth] ^= moved;
    words[i] ^= moved << 4 * kWidth;
  }
}

// Nibble a of word b becomes nibble b of word a.
void TransposeNibbles(uint32_t (&words)[kSide]) {
  SwapBlocks<4>(words, 0x0000FFFF);
  SwapBlocks<2>(words, 0x00FF00FF);
  SwapBlocks<1>(words, 0x0F0F0F0F);
}

void Split(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
           uint8_t* columns, size_t column_stride) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < channels; n += kSide) {
      uint32_t block[kSide];
      std::memcpy(block, words + r * row_stride + n * sizeof(uint32_t), sizeof(block));
      TransposeNibbles(block);
      uint8_t* to = columns + r * kSide * column_stride + ColumnBytes(n);
      for (size_t k = 0; k < kSide; ++k) std::memcpy(to + k * column_stride, &block[k], 4);
    }
  }
}

void Join(const uint8_t* columns, size_t column_stride, std::span<const uint32_t> picks,
          size_t channels, uint32_t* words, size_t words_stride) {
  for (size_t r = 0; r < picks.size() / kSide; ++r) {
    for (size_t n = 0; n < channels; n += kSide) {
      uint32_t block[kSide];
      for (size_t k = 0; k < kSide; ++k) {
        std::memcpy(&block[k], columns + picks[r * kSide + k] * column_stride + ColumnBytes(n), 4);
      }
      TransposeNibbles(block);
      std::memcpy(words + r * words_stride + n, block, sizeof(block));
    }
  }
}

void JoinAwq(const uint8_t* columns, size_t column_stride, size_t rows, size_t channels,
             uint32_t* words, size_t words_stride) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < channels; n += kSide) {
      uint32_t block[kSide];
      for (size_t k = 0; k < kSide; ++k) {
        std::memcpy(&block[k], columns + (r * kSide + k) * column_stride + ColumnBytes(n), 4);
      }
      TransposeNibbles(block);
      for (unsigned i = 0; i < kSide; ++i) words[r * words_stride + n + AwqChannel(i)] = block[i];
    }
  }
}

}  // namespace

const NibbleColumnKernels kNibbleColumnsScalar = {Split, Join, JoinAwq};

const NibbleColumnKernels& NibbleColumnKernelsFor(Isa isa) {
  static constexpr IsaVersion<const NibbleColumnKernels*> kVersions[] = {
      {Isa::kScalar, &kNibbleColumnsScalar},
      {Isa::kAvx2, &kNibbleColumnsAvx2},
      {Isa::kAvx512, &kNibbleColumnsAvx512},
      {Isa::kAvx512Vbmi, &kNibbleColumnsAvx512Vbmi},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
