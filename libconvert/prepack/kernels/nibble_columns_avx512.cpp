// AVX-512: 128 channels by eight input channels at a time, in eight registers.
//
// Comments give the place of a nibble as the bits of its index: c6 … c0 are those of the channel in
// the 128, k2 … k0 those of the input channel. A place is (register; lane; byte in the lane; half).

#include "prepack/kernels/nibble_columns.h"
#include "prepack/kernels/prefetch.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kChannels = 128;
constexpr size_t kRegisters = 8;
constexpr size_t kWords = kZmmBytes / sizeof(uint32_t);
// How far ahead of the work memory is asked for: what is in flight at a time.
constexpr size_t kRowsAhead = 8;
constexpr size_t kBlocksAhead = 2;

struct Block {
  __m512i reg[kRegisters];
};

// Exchanges the bit kRegisterBit of the register with the one that tells the halves of a byte
// apart.
template <size_t kRegisterBit>
[[gnu::always_inline]] inline void SwapHalves(Block& block) {
  for (size_t i = 0; i < kRegisters; ++i) {
    if ((i & kRegisterBit) == 0) SwapNibbles(block.reg[i], block.reg[i + kRegisterBit]);
  }
}

// The same with the lowest bit of the byte (kBytes = 1) or the second one (2): one shuffle each.
template <size_t kRegisterBit, size_t kBytes>
[[gnu::always_inline]] inline void SwapBytes(Block& block) {
  // Each byte from `kBytes` before it, or behind it, in the lane.
  const __m512i up = _mm512_broadcast_i32x4(
      kBytes == 1 ? _mm_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14)
                  : _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
  const __m512i down = _mm512_broadcast_i32x4(
      kBytes == 1 ? _mm_setr_epi8(1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15)
                  : _mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  constexpr uint64_t kUpper = kBytes == 1 ? 0xAAAAAAAAAAAAAAAA : 0xCCCCCCCCCCCCCCCC;
  for (size_t i = 0; i < kRegisters; ++i) {
    if ((i & kRegisterBit) != 0) continue;
    __m512i& a = block.reg[i];
    __m512i& b = block.reg[i + kRegisterBit];
    const __m512i first = _mm512_mask_shuffle_epi8(a, kUpper, b, up);
    b = _mm512_mask_shuffle_epi8(b, ~kUpper, a, down);
    a = first;
  }
}

size_t WholeBlocks(size_t channels) {
  return channels / kChannels * kChannels;
}

// (c6 c5 c4; c3 c2; c1 c0 k2 k1; k0) ⇄ (k2 k1 k0; c3 c2; c1 c0 c6 c5; c4)
[[gnu::always_inline]] inline void ExchangeInputs(Block& block) {
  SwapHalves<1>(block);
  SwapBytes<2, 1>(block);
  SwapBytes<4, 2>(block);
}

void Split(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
           uint8_t* columns, size_t column_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < rows; ++r) {
    const size_t ahead = r + kRowsAhead < rows ? r + kRowsAhead : rows - 1;
    for (size_t n = 0; n < whole; n += kChannels) {
      PrefetchRows(words + ahead * row_stride + n * sizeof(uint32_t), 0, 1, kRegisters * kZmmBytes);
      const std::byte* from = words + r * row_stride + n * sizeof(uint32_t);
      Block block;
      for (size_t i = 0; i < kRegisters; ++i) block.reg[i] = Load(from + i * kZmmBytes);
      ExchangeInputs(block);
      uint8_t* to = columns + r * kRegisters * column_stride + ColumnBytes(n);
      for (size_t k = 0; k < kRegisters; ++k) Store(to + k * column_stride, block.reg[k]);
    }
  }
  kNibbleColumnsAvx2.split(words + whole * sizeof(uint32_t), row_stride, rows, channels - whole,
                           columns + ColumnBytes(whole), column_stride);
}

void Join(const uint8_t* columns, size_t column_stride, std::span<const uint32_t> picks,
          size_t channels, uint32_t* words, size_t words_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < picks.size() / kRegisters; ++r) {
    for (size_t n = 0; n < whole; n += kChannels) {
      Block block;
      for (size_t k = 0; k < kRegisters; ++k) {
        block.reg[k] = Load(columns + picks[r * kRegisters + k] * column_stride + ColumnBytes(n));
      }
      ExchangeInputs(block);
      for (size_t i = 0; i < kRegisters; ++i) {
        Store(words + r * words_stride + n + kWords * i, block.reg[i]);
      }
    }
  }
  kNibbleColumnsAvx2.join(columns + ColumnBytes(whole), column_stride, picks, channels - whole,
                          words + whole, words_stride);
}

// Exchanges the bit kRegisterBit of the register with the highest bit of a word's index, and moves
// it on to `gather`'s place: see below.
template <size_t kRegisterBit>
[[gnu::always_inline]] inline void SwapWords(Block& block, __m512i gather) {
  const __m512i gather_high = _mm512_add_epi32(gather, _mm512_set1_epi32(8));
  for (size_t i = 0; i < kRegisters; ++i) {
    if ((i & kRegisterBit) != 0) continue;
    const __m512i a = block.reg[i];
    const __m512i b = block.reg[i + kRegisterBit];
    block.reg[i] = _mm512_permutex2var_epi32(a, gather, b);
    block.reg[i + kRegisterBit] = _mm512_permutex2var_epi32(a, gather_high, b);
  }
}

// (k2 k1 k0; c6 c5; c4 c3 c0 c2; c1) → (c6 c4 c5; c3 c2; c1 c0 k2 k1; k0)
[[gnu::always_inline]] inline void JoinAwqBlock(Block& block) {
  SwapHalves<1>(block);
  SwapBytes<2, 1>(block);
  SwapBytes<4, 2>(block);  // (c0 c2 c1; c6 c5; c4 c3 k2 k1; k0)
  // Words whose index is (c6 c5 c4 c3): c6 leaves, and c0 gets in at the low end. And so on.
  SwapWords<4>(block, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  SwapWords<1>(block, _mm512_setr_epi32(0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23));
  SwapWords<2>(block, _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
}

void JoinAwq(const uint8_t* columns, size_t column_stride, size_t rows, size_t channels,
             uint32_t* words, size_t words_stride) {
  constexpr size_t kOrder[kRegisters] = {0, 2, 1, 3, 4, 6, 5, 7};  // c6 c4 c5 → c6 c5 c4
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
      JoinAwqBlock(block);
      uint32_t* to = words + r * words_stride + n;
      for (size_t i = 0; i < kRegisters; ++i) Store(to + kWords * kOrder[i], block.reg[i]);
    }
  }
  kNibbleColumnsAvx2.join_awq(columns + ColumnBytes(whole), column_stride, rows, channels - whole,
                              words + whole, words_stride);
}

}  // namespace

const NibbleColumnKernels kNibbleColumnsAvx512 = {Split, Join, JoinAwq};

}  // namespace prepack
