// AVX2: 64 channels by eight input channels at a time, in eight registers.
//
// Comments give the place of a nibble as the bits of its index: c5 … c0 are those of the channel in
// the 64, k2 … k0 those of the input channel. A place is (register; lane; byte in the lane; half).

#include "prepack/kernels/nibble_columns.h"
#include "prepack/kernels/prefetch.h"
#include "prepack/kernels/ymm.h"

namespace prepack {
namespace {

constexpr size_t kChannels = 64;
constexpr size_t kRegisters = 8;
constexpr size_t kRegisterBytes = 32;
// How far ahead of the work memory is asked for: what is in flight at a time.
constexpr size_t kRowsAhead = 8;
constexpr size_t kBlocksAhead = 2;

struct Block {
  __m256i reg[kRegisters];
};

// Exchanges the bit that tells the halves of a byte apart with the lowest bit of the register.
[[gnu::always_inline]] inline void SwapHalves(Block& block) {
  const __m256i low_halves = _mm256_set1_epi8(0x0F);
  for (size_t i = 0; i < kRegisters; i += 2) {
    __m256i& a = block.reg[i];
    __m256i& b = block.reg[i + 1];
    const __m256i moved =
        _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(a, 4), b), low_halves);
    b = _mm256_xor_si256(b, moved);
    a = _mm256_xor_si256(a, _mm256_slli_epi16(moved, 4));
  }
}

// (c5 c4 c3; c2; c1 c0 k2 k1; k0) → (k2 k1 k0; c2; c5 c4 c1 c0; c3)
[[gnu::always_inline]] inline void SplitBlock(const std::byte* words, uint8_t* columns,
                                              size_t column_stride) {
  // c1 c0 k2 k1 → k2 k1 c1 c0
  const __m256i by_input = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  Block block;
  for (size_t i = 0; i < kRegisters; ++i) block.reg[i] = Load(words + i * kRegisterBytes);
  SwapHalves(block);  // (c5 c4 k0; …; c3)
  for (__m256i& reg : block.reg) reg = _mm256_shuffle_epi8(reg, by_input);
  Block next;
  for (size_t i = 0; i < 4; ++i) {  // (c4 k0 k2; c2; k1 c5 c1 c0; c3)
    next.reg[2 * i] = _mm256_unpacklo_epi32(block.reg[i], block.reg[i + 4]);
    next.reg[2 * i + 1] = _mm256_unpackhi_epi32(block.reg[i], block.reg[i + 4]);
  }
  for (size_t i = 0; i < 4; ++i) {
    const size_t k = i / 2 + 4 * (i % 2);  // i is k0 k2
    Store(columns + k * column_stride, _mm256_unpacklo_epi32(next.reg[i], next.reg[i + 4]));
    Store(columns + (k + 2) * column_stride, _mm256_unpackhi_epi32(next.reg[i], next.reg[i + 4]));
  }
}

// (k2 k1 k0; lane; b3 b2 b1 b0; half) → (b3 b2 half; lane; b1 b0 k2 k1; k0): words of one channel.
[[gnu::always_inline]] inline void JoinBlock(Block& block) {
  SwapHalves(block);
  Block next;  // (k1 half b3; lane; b2 b1 b0 k2; k0)
  for (size_t i = 0; i < 4; ++i) {
    next.reg[2 * i] = _mm256_unpacklo_epi8(block.reg[i], block.reg[i + 4]);
    next.reg[2 * i + 1] = _mm256_unpackhi_epi8(block.reg[i], block.reg[i + 4]);
  }
  for (size_t i = 0; i < 4; ++i) {
    const size_t to = i / 2 + 4 * (i % 2);  // i is half b3
    block.reg[to] = _mm256_unpacklo_epi8(next.reg[i], next.reg[i + 4]);
    block.reg[to + 2] = _mm256_unpackhi_epi8(next.reg[i], next.reg[i + 4]);
  }
}

// Joins columns in AWQ's order, which makes (c4 c3 c1; c5; c0 c2 k2 k1; k0), and writes the words
// in the order of the channels.
[[gnu::always_inline]] inline void JoinAwqBlock(Block& block, uint32_t* words) {
  JoinBlock(block);
  for (size_t i = 0; i < kRegisters; i += 2) {
    const __m256 a = _mm256_castsi256_ps(block.reg[i]);
    const __m256 b = _mm256_castsi256_ps(block.reg[i + 1]);
    // c1 c0 in a lane, for c2 = 0 and for c2 = 1
    const __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    const __m256i high = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
    // The lanes were c5, and are now c2.
    Store(words + 4 * i, _mm256_permute2x128_si256(low, high, 0x20));
    Store(words + 4 * i + kChannels / 2, _mm256_permute2x128_si256(low, high, 0x31));
  }
}

size_t WholeBlocks(size_t channels) {
  return channels / kChannels * kChannels;
}

void Split(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
           uint8_t* columns, size_t column_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < whole; n += kChannels) {
      const size_t ahead = r + kRowsAhead < rows ? r + kRowsAhead : rows - 1;
      PrefetchRows(words + ahead * row_stride + n * sizeof(uint32_t), 0, 1,
                   kRegisters * kRegisterBytes);
      SplitBlock(words + r * row_stride + n * sizeof(uint32_t),
                 columns + r * kCodesPerWideWord * column_stride + ColumnBytes(n), column_stride);
    }
  }
  kNibbleColumnsScalar.split(words + whole * sizeof(uint32_t), row_stride, rows, channels - whole,
                             columns + ColumnBytes(whole), column_stride);
}

void Join(const uint8_t* columns, size_t column_stride, std::span<const uint32_t> picks,
          size_t channels, uint32_t* words, size_t words_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < picks.size() / kCodesPerWideWord; ++r) {
    for (size_t n = 0; n < whole; n += kChannels) {
      Block block;
      for (size_t k = 0; k < kRegisters; ++k) {
        block.reg[k] = Load(columns + picks[r * kRegisters + k] * column_stride + ColumnBytes(n));
      }
      JoinBlock(block);
      for (size_t i = 0; i < kRegisters; ++i) {
        Store(words + r * words_stride + n + 8 * i, block.reg[i]);
      }
    }
  }
  kNibbleColumnsScalar.join(columns + ColumnBytes(whole), column_stride, picks, channels - whole,
                            words + whole, words_stride);
}

void JoinAwq(const uint8_t* columns, size_t column_stride, size_t rows, size_t channels,
             uint32_t* words, size_t words_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < rows; ++r) {
    const uint8_t* from = columns + r * kRegisters * column_stride;
    for (size_t n = 0; n < whole; n += kChannels) {
      Block block;
      for (size_t k = 0; k < kRegisters; ++k) {
        const uint8_t* column = from + k * column_stride + ColumnBytes(n);
        // Behind the last column this is somebody else's memory, or none: a hint does no harm.
        __builtin_prefetch(column + kBlocksAhead * kRegisters * column_stride);
        block.reg[k] = Load(column);
      }
      JoinAwqBlock(block, words + r * words_stride + n);
    }
  }
  kNibbleColumnsScalar.join_awq(columns + ColumnBytes(whole), column_stride, rows, channels - whole,
                                words + whole, words_stride);
}

}  // namespace

const NibbleColumnKernels kNibbleColumnsAvx2 = {Split, Join, JoinAwq};

}  // namespace prepack
