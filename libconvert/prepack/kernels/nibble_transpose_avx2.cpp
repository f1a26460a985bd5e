// AVX2: 16 rows by 64 columns at a time. xsimd loads, stores and computes. The unpack instructions
// are raw intrinsics, because working inside 128-bit lanes is exactly what is wanted of them here,
// and xsimd's zip does that in some versions and crosses lanes in others.

#include <immintrin.h>

#include <xsimd/xsimd.hpp>

#include "prepack/kernels/nibble_transpose.h"

namespace prepack {
namespace {

constexpr size_t kCols = 64;  // columns per step: 32 bytes of each row
constexpr size_t kPairs = kTransposeRows / 2;

// 32 bytes. The elements matter to shifts only, whose stray bits are masked off.
using Bytes = xsimd::batch<uint16_t, xsimd::avx2>;

struct Block {
  Bytes reg[16];
};

Bytes Load(const uint8_t* from) {
  return Bytes::load_unaligned(reinterpret_cast<const uint16_t*>(from));
}

void Store(uint8_t* to, Bytes value) {
  value.store_unaligned(reinterpret_cast<uint16_t*>(to));
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
void SwapNibbles(Bytes& a, Bytes& b) {
  const Bytes moved = ((a >> 4) ^ b) & Bytes(uint16_t{0x0F0F});
  b = b ^ moved;
  a = a ^ (moved << 4);
}

// Takes the registers of a block, lane by lane, as one sequence of 256 bytes and interleaves its
// first half with its second. On the 8-bit index of a byte this is a rotation to the left by one.
Block Shuffle(const Block& in) {
  Block out;
  for (size_t i = 0; i < 8; ++i) {
    out.reg[2 * i] = _mm256_unpacklo_epi8(in.reg[i], in.reg[i + 8]);
    out.reg[2 * i + 1] = _mm256_unpackhi_epi8(in.reg[i], in.reg[i + 8]);
  }
  return out;
}

// In a lane of the registers 2i and 2i + 1 lie the words of four columns: 4i … 4i + 3 in the low
// lanes, 32 columns more in the high lanes.
constexpr size_t kHighLaneCols = kCols / 2;
constexpr size_t kWordBytes = kTransposeWordBytes;

void StoreColumns(const Block& block, uint8_t* columns) {
  for (size_t i = 0; i < 16; i += 2) {
    Store(columns + 2 * i * kWordBytes,
          _mm256_permute2x128_si256(block.reg[i], block.reg[i + 1], 0x20));
    Store(columns + (2 * i + kHighLaneCols) * kWordBytes,
          _mm256_permute2x128_si256(block.reg[i], block.reg[i + 1], 0x31));
  }
}

Block LoadColumns(const uint8_t* columns) {
  Block block;
  for (size_t i = 0; i < 16; i += 2) {
    const Bytes low = Load(columns + 2 * i * kWordBytes);
    const Bytes high = Load(columns + (2 * i + kHighLaneCols) * kWordBytes);
    block.reg[i] = _mm256_permute2x128_si256(low, high, 0x20);
    block.reg[i + 1] = _mm256_permute2x128_si256(low, high, 0x31);
  }
  return block;
}

// Two words.
void StoreWords(uint8_t* columns, size_t column_stride, __m128i words) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(columns), words);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(columns + column_stride),
                   _mm_unpackhi_epi64(words, words));
}

__m128i LoadWords(const uint8_t* columns, size_t column_stride) {
  return _mm_unpacklo_epi64(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(columns)),
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(columns + column_stride)));
}

// The same for words that are `column_stride` bytes apart.
void StoreColumnsApart(const Block& block, uint8_t* columns, size_t column_stride) {
  for (size_t i = 0; i < 16; ++i) {
    const __m256i words = block.reg[i];
    StoreWords(columns + 2 * i * column_stride, column_stride, _mm256_castsi256_si128(words));
    StoreWords(columns + (2 * i + kHighLaneCols) * column_stride, column_stride,
               _mm256_extracti128_si256(words, 1));
  }
}

Block LoadColumnsApart(const uint8_t* columns, size_t column_stride) {
  Block block;
  for (size_t i = 0; i < 16; ++i) {
    const __m128i low = LoadWords(columns + 2 * i * column_stride, column_stride);
    const __m128i high =
        LoadWords(columns + (2 * i + kHighLaneCols) * column_stride, column_stride);
    block.reg[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
  return block;
}

// The nibbles of rows 2p and 2p + 1 at column k share byte p of word k, see the header.
Block LoadRows(const uint8_t* rows, size_t row_bytes) {
  // Registers 2p and 2p + 1 get bytes 0 … 15 and 16 … 31 (per lane: 8 columns each) of the merged
  // row pair p. In a lane, byte index = (pair, 3 bits; column, 5 bits).
  Block block;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    Bytes even = Load(rows + 2 * pair * row_bytes);
    Bytes odd = Load(rows + (2 * pair + 1) * row_bytes);
    SwapNibbles(even, odd);  // now the even columns of both rows, and the odd ones
    block.reg[2 * pair] = _mm256_unpacklo_epi8(even, odd);
    block.reg[2 * pair + 1] = _mm256_unpackhi_epi8(even, odd);
  }
  // Three rotations: (pair, column) becomes (column, pair), which is the order of the output.
  return Shuffle(Shuffle(Shuffle(block)));
}

void StoreRows(Block block, uint8_t* rows, size_t row_bytes) {
  // In a lane, byte index = (column, 5 bits; pair, 3 bits). Five rotations put the pair first,
  // but leave even and odd columns interleaved; four stop one short of that, with the bit that
  // tells them apart still in front: (column bit 0, pair, column bits 4 … 1).
  block = Shuffle(Shuffle(Shuffle(Shuffle(block))));
  for (size_t pair = 0; pair < kPairs; ++pair) {
    Bytes even = block.reg[pair];
    Bytes odd = block.reg[kPairs + pair];
    SwapNibbles(even, odd);
    Store(rows + 2 * pair * row_bytes, even);
    Store(rows + (2 * pair + 1) * row_bytes, odd);
  }
}

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
                   size_t column_stride) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) {
    const Block block = LoadRows(rows + k / 2, row_bytes);
    uint8_t* to = columns + k * column_stride;
    if (column_stride == kWordBytes) {
      StoreColumns(block, to);
    } else {
      StoreColumnsApart(block, to, column_stride);
    }
  }
  kNibbleTransposeScalar.rows_to_columns(rows + k / 2, row_bytes, cols - k,
                                         columns + k * column_stride, column_stride);
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, size_t row_bytes,
                   uint8_t* rows) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) {
    const uint8_t* from = columns + k * column_stride;
    StoreRows(
        column_stride == kWordBytes ? LoadColumns(from) : LoadColumnsApart(from, column_stride),
        rows + k / 2, row_bytes);
  }
  kNibbleTransposeScalar.columns_to_rows(columns + k * column_stride, column_stride, cols - k,
                                         row_bytes, rows + k / 2);
}

}  // namespace

const NibbleTranspose kNibbleTransposeAvx2 = {RowsToColumns, ColumnsToRows};

}  // namespace prepack
