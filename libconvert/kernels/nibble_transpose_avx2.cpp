// AVX2: 16 rows by 64 columns at a time. xsimd loads, stores and computes. The unpack instructions
// are raw intrinsics, because working inside 128-bit lanes is exactly what is wanted of them here,
// and xsimd's zip does that in some versions and crosses lanes in others.

#include <immintrin.h>

#include <xsimd/xsimd.hpp>

#include "kernels/nibble_transpose.h"

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

// columns[k·8 + r/2] has the nibbles of rows r and r + 1 at column k, see the header.
void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) {
    // Registers 2p and 2p + 1 get bytes 0 … 15 and 16 … 31 (per lane: 8 columns each) of the merged
    // row pair p. In a lane, byte index = (pair, 3 bits; column, 5 bits).
    Block block;
    for (size_t pair = 0; pair < kPairs; ++pair) {
      Bytes even = Load(rows + 2 * pair * row_bytes + k / 2);
      Bytes odd = Load(rows + (2 * pair + 1) * row_bytes + k / 2);
      SwapNibbles(even, odd);  // now the even columns of both rows, and the odd ones
      block.reg[2 * pair] = _mm256_unpacklo_epi8(even, odd);
      block.reg[2 * pair + 1] = _mm256_unpackhi_epi8(even, odd);
    }
    // Three rotations: (pair, column) becomes (column, pair), which is the order of the output.
    block = Shuffle(Shuffle(Shuffle(block)));
    // The low lanes hold columns 0 … 31, the high lanes columns 32 … 63.
    for (size_t i = 0; i < 16; i += 2) {
      Store(columns + k * 8 + i * 16,
            _mm256_permute2x128_si256(block.reg[i], block.reg[i + 1], 0x20));
      Store(columns + k * 8 + 256 + i * 16,
            _mm256_permute2x128_si256(block.reg[i], block.reg[i + 1], 0x31));
    }
  }
  kNibbleTransposeScalar.rows_to_columns(rows + k / 2, row_bytes, cols - k, columns + k * 8);
}

void ColumnsToRows(const uint8_t* columns, size_t cols, size_t row_bytes, uint8_t* rows) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) {
    Block block;
    for (size_t i = 0; i < 16; i += 2) {
      const Bytes low = Load(columns + k * 8 + i * 16);
      const Bytes high = Load(columns + k * 8 + 256 + i * 16);
      block.reg[i] = _mm256_permute2x128_si256(low, high, 0x20);
      block.reg[i + 1] = _mm256_permute2x128_si256(low, high, 0x31);
    }
    // In a lane, byte index = (column, 5 bits; pair, 3 bits). Five rotations put the pair first,
    // but leave even and odd columns interleaved; four stop one short of that, with the bit that
    // tells them apart still in front: (column bit 0, pair, column bits 4 … 1).
    block = Shuffle(Shuffle(Shuffle(Shuffle(block))));
    for (size_t pair = 0; pair < kPairs; ++pair) {
      Bytes even = block.reg[pair];
      Bytes odd = block.reg[kPairs + pair];
      SwapNibbles(even, odd);
      Store(rows + 2 * pair * row_bytes + k / 2, even);
      Store(rows + (2 * pair + 1) * row_bytes + k / 2, odd);
    }
  }
  kNibbleTransposeScalar.columns_to_rows(columns + k * 8, cols - k, row_bytes, rows + k / 2);
}

}  // namespace

const NibbleTranspose kNibbleTransposeAvx2 = {RowsToColumns, ColumnsToRows};

}  // namespace prepack
