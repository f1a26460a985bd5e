#pragma once

// The bodies of nibble_columns.h: a register of words of each of eight input channels at a time,
// which makes eight registers. The steps are those of the level: with AVX-512 a masked shuffle
// exchanges bytes of two registers.
//
// Comments give the place of a nibble as the bits of its index: c6 … c0 are those of the channel in
// the block (c5 … c0 with AVX2 and NEON), k2 … k0 those of the input channel. A place is (register;
// lane; byte in the lane; half).

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

// Eight channels at a time, in the order of the channels.
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

}  // namespace

void SplitColumns(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
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

void SplitOrderedColumns(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
                         uint8_t* columns, size_t column_stride) {
  SplitColumns(words, row_stride, rows, channels, columns, column_stride);
}

void JoinColumns(const uint8_t* columns, size_t column_stride, const uint32_t* picks, size_t rows,
                 size_t channels, uint32_t* words, size_t words_stride) {
  for (size_t r = 0; r < rows; ++r) {
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

void JoinAwqColumns(const uint8_t* columns, size_t column_stride, size_t rows, size_t channels,
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

#else

namespace {

constexpr size_t kInputs = kCodesPerWideWord;        // of a block
constexpr size_t kBlockChannels = 2 * kVectorBytes;  // a byte of a column holds two
constexpr size_t kVectorWords = kVectorBytes / kWideWordBytes;
// How far ahead of the work memory is asked for: what is in flight at a time.
constexpr size_t kRowsAhead = 8;
constexpr size_t kBlocksAhead = 2;

struct ColumnsBlock {
  Vector reg[kInputs];
};

[[gnu::always_inline]] inline ColumnsBlock LoadBlock(const uint8_t* columns, size_t column_stride) {
  ColumnsBlock block;
#pragma GCC unroll 8
  for (size_t k = 0; k < kInputs; ++k) block.reg[k] = Load(columns + k * column_stride);
  return block;
}

// Exchanges the bit kRegisterBit of the register with the one that tells the halves of a byte
// apart.
template <size_t kRegisterBit>
[[gnu::always_inline]] inline void SwapHalves(ColumnsBlock& block) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; ++i) {
    if ((i & kRegisterBit) == 0) SwapNibbles(block.reg[i], block.reg[i + kRegisterBit]);
  }
}

#ifdef PREPACK_AVX512

// The same with the lowest bit of the byte (kBytes = 1) or the second one (2): one shuffle each.
template <size_t kRegisterBit, size_t kBytes>
[[gnu::always_inline]] inline void SwapBytes(ColumnsBlock& block) {
  // Each byte from `kBytes` before it, or behind it, in the lane.
  const Vector up =
      Repeat(kBytes == 1 ? LaneOf<0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14>()
                         : LaneOf<0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13>());
  const Vector down =
      Repeat(kBytes == 1 ? LaneOf<1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15>()
                         : LaneOf<2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15>());
  constexpr uint64_t kUpper = kBytes == 1 ? 0xAAAAAAAAAAAAAAAA : 0xCCCCCCCCCCCCCCCC;
  for (size_t i = 0; i < kInputs; ++i) {
    if ((i & kRegisterBit) != 0) continue;
    Vector& a = block.reg[i];
    Vector& b = block.reg[i + kRegisterBit];
    const Vector first = _mm512_mask_shuffle_epi8(a, kUpper, b, up);
    b = _mm512_mask_shuffle_epi8(b, ~kUpper, a, down);
    a = first;
  }
}

// (c6 c5 c4; c3 c2; c1 c0 k2 k1; k0) ⇄ (k2 k1 k0; c3 c2; c1 c0 c6 c5; c4)
[[gnu::always_inline]] inline void ExchangeInputs(ColumnsBlock& block) {
  SwapHalves<1>(block);
  SwapBytes<2, 1>(block);
  SwapBytes<4, 2>(block);
}

[[gnu::always_inline]] inline void SplitBlock(const std::byte* words, uint8_t* columns,
                                              size_t column_stride) {
  ColumnsBlock block;
  for (size_t i = 0; i < kInputs; ++i) block.reg[i] = Load(words + i * kVectorBytes);
  ExchangeInputs(block);
  for (size_t k = 0; k < kInputs; ++k) Store(columns + k * column_stride, block.reg[k]);
}

[[gnu::always_inline]] inline void JoinBlock(ColumnsBlock& block) {
  ExchangeInputs(block);
}

// Exchanges the bit kRegisterBit of the register with the highest bit of a word's index, and moves
// it on to `gather`'s place: see below.
template <size_t kRegisterBit>
[[gnu::always_inline]] inline void SwapWords(ColumnsBlock& block, Vector gather) {
  const Vector gather_high = _mm512_add_epi32(gather, _mm512_set1_epi32(8));
  for (size_t i = 0; i < kInputs; ++i) {
    if ((i & kRegisterBit) != 0) continue;
    const Vector a = block.reg[i];
    const Vector b = block.reg[i + kRegisterBit];
    block.reg[i] = _mm512_permutex2var_epi32(a, gather, b);
    block.reg[i + kRegisterBit] = _mm512_permutex2var_epi32(a, gather_high, b);
  }
}

// (k2 k1 k0; c6 c5; c4 c3 c0 c2; c1) → (c6 c4 c5; c3 c2; c1 c0 k2 k1; k0)
[[gnu::always_inline]] inline void JoinAwqBlock(const uint8_t* columns, size_t column_stride,
                                                uint32_t* words) {
  constexpr size_t kOrder[kInputs] = {0, 2, 1, 3, 4, 6, 5, 7};  // c6 c4 c5 → c6 c5 c4
  ColumnsBlock block = LoadBlock(columns, column_stride);
  SwapHalves<1>(block);
  SwapBytes<2, 1>(block);
  SwapBytes<4, 2>(block);  // (c0 c2 c1; c6 c5; c4 c3 k2 k1; k0)
  // Words whose index is (c6 c5 c4 c3): c6 leaves, and c0 gets in at the low end. And so on.
  SwapWords<4>(block, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  SwapWords<1>(block, _mm512_setr_epi32(0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23));
  SwapWords<2>(block, _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
  for (size_t i = 0; i < kInputs; ++i) Store(words + kVectorWords * kOrder[i], block.reg[i]);
}

#else

// (c5 c4 c3; c2; c1 c0 k2 k1; k0) → (k2 k1 k0; c2; c5 c4 c1 c0; c3)
[[gnu::always_inline]] inline void SplitBlock(const std::byte* words, uint8_t* columns,
                                              size_t column_stride) {
  // c1 c0 k2 k1 → k2 k1 c1 c0
  const Vector by_input = Repeat(LaneOf<0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15>());
  ColumnsBlock block;
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; ++i) block.reg[i] = Load(words + i * kVectorBytes);
  SwapHalves<1>(block);  // (c5 c4 k0; …; c3)
#pragma GCC unroll 8
  for (Vector& reg : block.reg) reg = ShuffleBytes(reg, by_input);
  RotateIndex<4, 2>(block.reg);  // (k0 k2 k1; c2; c5 c4 c1 c0; c3)
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; ++i) {
    Store(columns + (i % 4 * 2 + i / 4) * column_stride, block.reg[i]);
  }
}

// Exchanges the bit kRegisterBit of the register with the highest one of the byte in its lane, and
// moves it to the place of `kBytes`.
template <size_t kRegisterBit, size_t kBytes>
[[gnu::always_inline]] inline void InsertBit(ColumnsBlock& block) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; ++i) {
    if ((i & kRegisterBit) != 0) continue;
    const Vector low = UnpackLow<kBytes>(block.reg[i], block.reg[i + kRegisterBit]);
    block.reg[i + kRegisterBit] = UnpackHigh<kBytes>(block.reg[i], block.reg[i + kRegisterBit]);
    block.reg[i] = low;
  }
}

// (c4 c3 c2; c5; c1 c0 k2 k1; k0) → (k1 k2 k0; c5; c4 c3 c2 c1; c0)
[[gnu::always_inline]] inline void SplitOrderedBlock(const std::byte* words, uint8_t* columns,
                                                     size_t column_stride) {
  constexpr size_t kOrder[kInputs] = {0, 1, 4, 5, 2, 3, 6, 7};  // k1 k2 k0 → k2 k1 k0
  // c1 c0 k2 k1 → c0 k2 k1 c1
  const Vector by_input = Repeat(LaneOf<0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15>());
  ColumnsBlock block;
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; ++i) {
    const std::byte* from = words + i * kLaneBytes;
    block.reg[i] = ShuffleBytes(LoadTwoLanes(from, from + kInputs * kLaneBytes), by_input);
  }
  InsertBit<1, 2>(block);  // (c4 c3 c0; c5; k2 k1 c2 c1; k0)
  SwapHalves<1>(block);    // (c4 c3 k0; …; c0)
  InsertBit<2, 4>(block);  // (c4 k2 k0; c5; k1 c3 c2 c1; c0)
  InsertBit<4, 8>(block);  // (k1 k2 k0; c5; c4 c3 c2 c1; c0)
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; ++i) Store(columns + kOrder[i] * column_stride, block.reg[i]);
}

// (k2 k1 k0; lane; b3 b2 b1 b0; half) → (b3 b2 half; lane; b1 b0 k2 k1; k0): words of one channel.
[[gnu::always_inline]] inline void JoinBlock(ColumnsBlock& block) {
  SwapHalves<1>(block);
  RotateIndex<1, 2>(block.reg);  // (half b3 b2; …)
  const ColumnsBlock joined = block;
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; ++i) block.reg[i % 4 * 2 + i / 4] = joined.reg[i];
}

// Joins columns in AWQ's order, which makes (c4 c3 c1; c5; c0 c2 k2 k1; k0), and writes the words
// in the order of the channels.
[[gnu::always_inline]] inline void JoinAwqBlock(const uint8_t* columns, size_t column_stride,
                                                uint32_t* words) {
  ColumnsBlock block = LoadBlock(columns, column_stride);
  JoinBlock(block);
#pragma GCC unroll 8
  for (size_t i = 0; i < kInputs; i += 2) {
    // c1 c0 in a lane, for c2 = 0 and for c2 = 1
    const Vector low = EvenWords(block.reg[i], block.reg[i + 1]);
    const Vector high = OddWords(block.reg[i], block.reg[i + 1]);
    // The lanes were c5, and are now c2.
    Store(words + 4 * i, FirstLanes(low, high));
    Store(words + 4 * i + kBlockChannels / 2, SecondLanes(low, high));
  }
}

#endif

size_t WholeBlocks(size_t channels) {
  return channels / kBlockChannels * kBlockChannels;
}

using BlockSplitter = void(const std::byte* words, uint8_t* columns, size_t column_stride);

// Splits whole blocks; returns how many channels they have.
template <BlockSplitter kSplit>
size_t SplitBlocks(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
                   uint8_t* columns, size_t column_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < rows; ++r) {
    const size_t ahead = r + kRowsAhead < rows ? r + kRowsAhead : rows - 1;
    for (size_t n = 0; n < whole; n += kBlockChannels) {
      const size_t at = n * kWideWordBytes;
      PrefetchRows(words + ahead * row_stride + at, 0, 1, kInputs * kVectorBytes);
      kSplit(words + r * row_stride + at, columns + r * kInputs * column_stride + n / 2,
             column_stride);
    }
  }
  return whole;
}

}  // namespace

void SplitColumns(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
                  uint8_t* columns, size_t column_stride) {
  const size_t whole =
      SplitBlocks<SplitBlock>(words, row_stride, rows, channels, columns, column_stride);
  Below().split_columns(words + whole * kWideWordBytes, row_stride, rows, channels - whole,
                        columns + whole / 2, column_stride);
}

#ifndef PREPACK_AVX512

void SplitOrderedColumns(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
                         uint8_t* columns, size_t column_stride) {
  const size_t whole =
      SplitBlocks<SplitOrderedBlock>(words, row_stride, rows, channels, columns, column_stride);
  Below().split_ordered_columns(words + whole * kWideWordBytes, row_stride, rows, channels - whole,
                                columns + whole / 2, column_stride);
}

#endif

void JoinColumns(const uint8_t* columns, size_t column_stride, const uint32_t* picks, size_t rows,
                 size_t channels, uint32_t* words, size_t words_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < whole; n += kBlockChannels) {
      ColumnsBlock block;
#pragma GCC unroll 8
      for (size_t k = 0; k < kInputs; ++k) {
        block.reg[k] = Load(columns + picks[r * kInputs + k] * column_stride + n / 2);
      }
      JoinBlock(block);
#pragma GCC unroll 8
      for (size_t i = 0; i < kInputs; ++i) {
        Store(words + r * words_stride + n + kVectorWords * i, block.reg[i]);
      }
    }
  }
  Below().join_columns(columns + whole / 2, column_stride, picks, rows, channels - whole,
                       words + whole, words_stride);
}

void JoinAwqColumns(const uint8_t* columns, size_t column_stride, size_t rows, size_t channels,
                    uint32_t* words, size_t words_stride) {
  const size_t whole = WholeBlocks(channels);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < whole; n += kBlockChannels) {
      const uint8_t* from = columns + r * kInputs * column_stride + n / 2;
      for (size_t k = 0; k < kInputs; ++k) {
        // Behind the last column this is somebody else's memory, or none: a hint does no harm.
        __builtin_prefetch(from + (kBlocksAhead * kInputs + k) * column_stride);
      }
      JoinAwqBlock(from, column_stride, words + r * words_stride + n);
    }
  }
  Below().join_awq_columns(columns + whole / 2, column_stride, rows, channels - whole,
                           words + whole, words_stride);
}

#endif

}  // namespace prepack::PREPACK_LEVEL
