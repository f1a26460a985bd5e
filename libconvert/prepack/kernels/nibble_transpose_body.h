#pragma once

// The bodies of nibble_transpose.h.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

// `lines` times `length` nibbles; what is written is XORed with `mask`.
void TransposeNibbles(const uint8_t* in, size_t in_stride, size_t lines, size_t length,
                      uint8_t mask, uint8_t* out, size_t out_stride) {
  for (size_t k = 0; k < length; k += 2) {
    for (size_t r = 0; r < lines; r += 2) {
      const uint8_t* from = in + r * in_stride + k / 2;
      uint8_t* to = out + k * out_stride + r / 2;
      SwapNibbles(from[0], from[in_stride], to[0], to[out_stride]);
      to[0] ^= mask;
      to[out_stride] ^= mask;
    }
  }
}

}  // namespace

void RowsToWords(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
                 size_t column_stride) {
  TransposeNibbles(rows, row_bytes, kTransposeRows, cols, 0, columns, column_stride);
}

void WordsToRows(const uint8_t* columns, size_t column_stride, size_t cols, size_t row_bytes,
                 uint8_t* rows) {
  TransposeNibbles(columns, column_stride, cols, kTransposeRows, 0, rows, row_bytes);
}

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                   uint8_t* columns, size_t column_stride) {
  TransposeNibbles(rows, row_bytes, kWideTransposeRows, cols, mask, columns, column_stride);
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, uint8_t mask,
                   size_t row_bytes, uint8_t* rows) {
  TransposeNibbles(columns, column_stride, cols, kWideTransposeRows, mask, rows, row_bytes);
}

#else

// Blocks of 16 rows, the bytes of a register of each: 64 columns at a time, or 128 with AVX-512,
// which has as many registers of twice the size and permutes bytes of two: half as fast again to
// words, and twice as fast back.

namespace {

constexpr size_t kWordCols = 2 * kVectorBytes;
constexpr size_t kRowPairs = kTransposeRows / 2;
constexpr size_t kWordBytes = kTransposeWordBytes;

#ifdef PREPACK_AVX512

// Comments give the place of a byte as the bits of its index: c6 … c0 are those of the column, p2
// p1 p0 those of the pair of rows. A place is (register; lane; byte in the lane).

// Half of what a step takes: of its columns, or of the pairs of rows.
struct Half {
  Vector reg[kRowPairs];
};

// The words of eight columns.
template <bool kDense>
[[gnu::always_inline]] inline void StoreWords(uint8_t* to, size_t stride, Vector words) {
  if constexpr (kDense) {
    Store(to, words);
  } else {
    StoreTwoWords(to, stride, _mm512_castsi512_si128(words));
    StoreTwoWords(to + 2 * stride, stride, _mm512_extracti32x4_epi32(words, 1));
    StoreTwoWords(to + 4 * stride, stride, _mm512_extracti32x4_epi32(words, 2));
    StoreTwoWords(to + 6 * stride, stride, _mm512_extracti32x4_epi32(words, 3));
  }
}

template <bool kDense>
[[gnu::always_inline]] inline Vector LoadWords(const uint8_t* from, size_t stride) {
  if constexpr (kDense) return Load(from);
  return JoinLanes(LoadTwoWords(from, stride), LoadTwoWords(from + 2 * stride, stride),
                   LoadTwoWords(from + 4 * stride, stride),
                   LoadTwoWords(from + 6 * stride, stride));
}

// (c0 p1 p0; p2 c5; c4 c3 c2 c1) for c6 = 0 and for c6 = 1. Both come from the same cache lines.
[[gnu::always_inline]] inline void LoadRows(const uint8_t* rows, size_t row_bytes, Half& first,
                                            Half& second) {
  for (size_t pair = 0; pair < kRowPairs / 2; ++pair) {
    const uint8_t* row = rows + 2 * pair * row_bytes;
    const uint8_t* far = row + kRowPairs * row_bytes;
    for (size_t c6 = 0; c6 < 2; ++c6) {
      const size_t at = c6 * kVectorBytes / 2;
      Vector even = LoadHalves(row + at, far + at);
      Vector odd = LoadHalves(row + row_bytes + at, far + row_bytes + at);
      SwapNibbles(even, odd);  // now the even columns of both rows, and the odd ones
      Half& half = c6 == 0 ? first : second;
      half.reg[pair] = even;
      half.reg[pair + kRowPairs / 2] = odd;
    }
  }
}

template <bool kDense>
[[gnu::always_inline]] inline void StoreColumns(Half& half, uint8_t* columns, size_t stride) {
  RotateIndex<1, 3>(half.reg);  // (c4 c3 c2; p2 c5; c1 c0 p1 p0)
  // 32-bit numbers of two registers to (c2 c1; c0 p2), for c5 = 0
  const Vector gather = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
  const Vector gather_next = _mm512_add_epi32(gather, _mm512_set1_epi32(4));  // for c5 = 1
  for (size_t i = 0; i < kRowPairs; i += 2) {
    const Vector a = half.reg[i];
    const Vector b = half.reg[i + 1];
    uint8_t* to = columns + 4 * i * stride;
    StoreWords<kDense>(to, stride, _mm512_permutex2var_epi32(a, gather, b));
    StoreWords<kDense>(to + kWordCols / 4 * stride, stride,
                       _mm512_permutex2var_epi32(a, gather_next, b));
  }
}

template <bool kDense>
[[gnu::always_inline]] inline void StepToWords(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* columns, size_t stride) {
  Half first;
  Half second;
  LoadRows(rows, row_bytes, first, second);
  StoreColumns<kDense>(first, columns, stride);
  StoreColumns<kDense>(second, columns + kWordCols / 2 * stride, stride);
}

// For each 16-bit number of (c6 c5; c4 c3 c2) its place in two registers of (c3; c6 c2; p0 c5 c4),
// of which the one for p0 = 0 is meant.
struct WordPlaces {
  alignas(kVectorBytes) uint16_t place[kVectorBytes / 2];
  constexpr WordPlaces() : place() {
    for (size_t i = 0; i < kVectorBytes / 2; ++i) {
      const size_t c6 = i >> 4;
      const size_t c5 = i >> 3 & 1;
      const size_t c4 = i >> 2 & 1;
      const size_t c3 = i >> 1 & 1;
      const size_t c2 = i & 1;
      place[i] = static_cast<uint16_t>(c3 << 5 | c6 << 4 | c2 << 3 | c5 << 1 | c4);
    }
  }
};
constexpr WordPlaces kWordPlaces;

// Sixteen rows are too many for the CPU to foresee where the next cache lines are written.
template <bool kDense>
[[gnu::always_inline]] inline void StepToRows(const uint8_t* columns, size_t stride,
                                              size_t row_bytes, uint8_t* rows) {
  const Vector gather = Load(kWordPlaces.place);
  const Vector gather_next = _mm512_add_epi16(gather, _mm512_set1_epi16(4));  // for p0 = 1
  Vector reg[2 * kRowPairs];
  for (size_t i = 0; i < kRowPairs; ++i) {  // (c6 c5 c4 c3; c2 c1; c0 p2 p1 p0)
    const uint8_t* from = columns + 8 * i * stride;
    const Vector a = LoadWords<kDense>(from, stride);
    const Vector b = LoadWords<kDense>(from + kWordCols / 2 * stride, stride);
    reg[i] = _mm512_shuffle_i32x4(a, b, 0x88);
    reg[i + kRowPairs] = _mm512_shuffle_i32x4(a, b, 0xDD);
  }                        // (c1 c5 c4 c3; c6 c2; c0 p2 p1 p0)
  RotateIndex<1>(reg);     // (c5 c4 c3 c0; c6 c2; p2 p1 p0 c1)
  RotateIndex<2, 2>(reg);  // (c3 c0 p2 p1; c6 c2; p0 c5 c4 c1)
  for (size_t i = 0; i < kRowPairs / 2; ++i) {
    for (size_t p0 = 0; p0 < 2; ++p0) {  // (c0 p2 p1 p0; c6 c5; c4 c3 c2 c1)
      const Vector places = p0 == 0 ? gather : gather_next;
      Vector even = _mm512_permutex2var_epi16(reg[i], places, reg[i + kRowPairs]);
      Vector odd = _mm512_permutex2var_epi16(reg[i + kRowPairs / 2], places,
                                             reg[i + kRowPairs + kRowPairs / 2]);
      SwapNibbles(even, odd);
      uint8_t* row = rows + (4 * i + 2 * p0) * row_bytes;
      Store(row, even);
      Store(row + row_bytes, odd);
      PrefetchRows(row + kVectorBytes, row_bytes, 2, kVectorBytes);
    }
  }
}

#else

struct WordBlock {
  Vector reg[kTransposeRows];
};

// In a lane of the registers 2i and 2i + 1 lie the words of four columns: 4i … 4i + 3 in the low
// lanes, 32 columns more in the high lanes.
constexpr size_t kHighLaneCols = kWordCols / 2;

// The words of four columns.
template <bool kDense>
[[gnu::always_inline]] inline void StoreWords(uint8_t* to, size_t stride, Vector words) {
  if constexpr (kDense) {
    Store(to, words);
  } else {
    StoreTwoWords(to, stride, LowLane(words));
    StoreTwoWords(to + 2 * stride, stride, HighLane(words));
  }
}

template <bool kDense>
[[gnu::always_inline]] inline Vector LoadWords(const uint8_t* from, size_t stride) {
  if constexpr (kDense) return Load(from);
  return JoinLanes(LoadTwoWords(from, stride), LoadTwoWords(from + 2 * stride, stride));
}

template <bool kDense>
[[gnu::always_inline]] inline void StoreColumns(const WordBlock& block, uint8_t* columns,
                                                size_t stride) {
  for (size_t i = 0; i < 16; i += 2) {
    uint8_t* to = columns + 2 * i * stride;
    StoreWords<kDense>(to, stride, FirstLanes(block.reg[i], block.reg[i + 1]));
    StoreWords<kDense>(to + kHighLaneCols * stride, stride,
                       SecondLanes(block.reg[i], block.reg[i + 1]));
  }
}

template <bool kDense>
[[gnu::always_inline]] inline WordBlock LoadColumns(const uint8_t* columns, size_t stride) {
  WordBlock block;
  for (size_t i = 0; i < 16; i += 2) {
    const uint8_t* from = columns + 2 * i * stride;
    const Vector low = LoadWords<kDense>(from, stride);
    const Vector high = LoadWords<kDense>(from + kHighLaneCols * stride, stride);
    block.reg[i] = FirstLanes(low, high);
    block.reg[i + 1] = SecondLanes(low, high);
  }
  return block;
}

// The nibbles of rows 2p and 2p + 1 at column k share byte p of word k, see the header.
[[gnu::always_inline]] inline WordBlock LoadRows(const uint8_t* rows, size_t row_bytes) {
  // Registers 2p and 2p + 1 get bytes 0 … 15 and 16 … 31 (per lane: 8 columns each) of the merged
  // row pair p. In a lane, byte index = (pair, 3 bits; column, 5 bits).
  WordBlock block;
  for (size_t pair = 0; pair < kRowPairs; ++pair) {
    block.reg[2 * pair] = Load(rows + 2 * pair * row_bytes);
    block.reg[2 * pair + 1] = Load(rows + (2 * pair + 1) * row_bytes);
    ZipNibbles(block.reg[2 * pair], block.reg[2 * pair + 1]);
  }
  // Three rotations: (pair, column) becomes (column, pair), which is the order of the output.
  RotateIndex<1, 3>(block.reg);
  return block;
}

[[gnu::always_inline]] inline void StoreRows(WordBlock block, uint8_t* rows, size_t row_bytes) {
  // In a lane, byte index = (column, 5 bits; pair, 3 bits). Five rotations put the pair first,
  // but leave even and odd columns interleaved; four stop one short of that, with the bit that
  // tells them apart still in front: (column bit 0, pair, column bits 4 … 1).
  RotateIndex<1, 4>(block.reg);
  for (size_t pair = 0; pair < kRowPairs; ++pair) {
    Vector even = block.reg[pair];
    Vector odd = block.reg[kRowPairs + pair];
    SwapNibbles(even, odd);
    Store(rows + 2 * pair * row_bytes, even);
    Store(rows + (2 * pair + 1) * row_bytes, odd);
  }
}

template <bool kDense>
[[gnu::always_inline]] inline void StepToWords(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* columns, size_t stride) {
  StoreColumns<kDense>(LoadRows(rows, row_bytes), columns, stride);
}

template <bool kDense>
[[gnu::always_inline]] inline void StepToRows(const uint8_t* columns, size_t stride,
                                              size_t row_bytes, uint8_t* rows) {
  StoreRows(LoadColumns<kDense>(columns, stride), rows, row_bytes);
}

#endif

template <bool kDense>
void StepsToWords(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
                  size_t stride) {
  for (size_t k = 0; k < cols; k += kWordCols) {
    StepToWords<kDense>(rows + k / 2, row_bytes, columns + k * stride, stride);
  }
}

template <bool kDense>
void StepsToRows(const uint8_t* columns, size_t stride, size_t cols, size_t row_bytes,
                 uint8_t* rows) {
  for (size_t k = 0; k < cols; k += kWordCols) {
    StepToRows<kDense>(columns + k * stride, stride, row_bytes, rows + k / 2);
  }
}

}  // namespace

void RowsToWords(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
                 size_t column_stride) {
  const size_t whole = cols / kWordCols * kWordCols;
  const auto steps = column_stride == kWordBytes ? StepsToWords<true> : StepsToWords<false>;
  steps(rows, row_bytes, whole, columns, column_stride);
  Below().rows_to_words(rows + whole / 2, row_bytes, cols - whole, columns + whole * column_stride,
                        column_stride);
}

void WordsToRows(const uint8_t* columns, size_t column_stride, size_t cols, size_t row_bytes,
                 uint8_t* rows) {
  const size_t whole = cols / kWordCols * kWordCols;
  const auto steps = column_stride == kWordBytes ? StepsToRows<true> : StepsToRows<false>;
  steps(columns, column_stride, whole, row_bytes, rows);
  Below().words_to_rows(columns + whole * column_stride, column_stride, cols - whole, row_bytes,
                        rows + whole / 2);
}

#ifndef PREPACK_AVX512  // which is no faster

// Blocks of 64 rows.
//
// Blocks of 1 KiB, of which the two lanes of a register hold what lies half a block apart: 64 rows
// by 32 columns on the way to columns, and 32 rows by 64 columns on the way back, so that what is
// written of a column or of a row is always a whole register. A block that would stick out at the
// end is moved back over its neighbour, and writes some columns twice; only fewer columns than a
// block has are left to the scalar twin.
//
// Loops over registers are unrolled by name: the compiler leaves some of them rolled, and then does
// more arithmetic on addresses than on nibbles.

namespace {

constexpr size_t kToColumnsCols = 32;
constexpr size_t kToRowsCols = 64;
constexpr size_t kToRowsRows = 32;

// Four of sixteen registers: few enough to stay registers.
constexpr size_t kQuad = 4;

// SwapNibbles, and XORs both with `masks`.
[[gnu::always_inline]] inline void SwapAndMask(Vector& a, Vector& b, Vector masks) {
  SwapNibbles(a, b);
  a = Xor(a, masks);
  b = Xor(b, masks);
}

// Rows that become columns are nibbles of two columns at first; columns that become rows are so in
// the end.
enum class Swap { kFirst, kLast };

// What lies `apart` behind each of the 32 lines that are read is the other lane of its register.
//
// Sixteen registers are transposed, byte a of register b becoming byte b of register a, in two
// steps: first registers i, i + 4, i + 8, i + 12, of which a rotation by two takes the two bits in
// front of the index of a byte to the registers, and those of the registers to its end; then what
// this has made of each of these for all i, which makes registers 4j … 4j + 3.
template <Swap kSwap>
[[gnu::always_inline]] inline void TransposeBlock(const uint8_t* in, size_t in_stride, size_t apart,
                                                  uint8_t* out, size_t out_stride, Vector masks) {
  Vector evens[kQuad][kQuad];
  Vector odds[kQuad][kQuad];
#pragma GCC unroll 4
  for (size_t i = 0; i < kQuad; ++i) {
    Vector even[kQuad];
    Vector odd[kQuad];
#pragma GCC unroll 4
    for (size_t j = 0; j < kQuad; ++j) {
      const uint8_t* line = in + 2 * (kQuad * j + i) * in_stride;
      even[j] = LoadTwoLanes(line, line + apart);
      odd[j] = LoadTwoLanes(line + in_stride, line + in_stride + apart);
      if (kSwap == Swap::kFirst) SwapAndMask(even[j], odd[j], masks);
    }
    RotateIndex<1, 2>(even);
    RotateIndex<1, 2>(odd);
#pragma GCC unroll 4
    for (size_t j = 0; j < kQuad; ++j) {
      evens[j][i] = even[j];
      odds[j][i] = odd[j];
    }
  }
#pragma GCC unroll 4
  for (size_t j = 0; j < kQuad; ++j) {
    RotateIndex<1, 2>(evens[j]);
    RotateIndex<1, 2>(odds[j]);
#pragma GCC unroll 4
    for (size_t i = 0; i < kQuad; ++i) {
      if (kSwap == Swap::kLast) SwapAndMask(evens[j][i], odds[j][i], masks);
      uint8_t* line = out + 2 * (kQuad * j + i) * out_stride;
      Store(line, evens[j][i]);
      Store(line + out_stride, odds[j][i]);
    }
  }
}

inline void ColumnsToBlock(const uint8_t* columns, size_t column_stride, size_t row_bytes,
                           uint8_t* rows, Vector masks) {
  TransposeBlock<Swap::kLast>(columns, column_stride, kToRowsCols / 2 * column_stride, rows,
                              row_bytes, masks);
}

// What the next blocks read is asked for some lines per block: all at once, they would wait for
// each other. While blocks go through a cache line of each row, those are of the next 64 rows.
[[gnu::always_inline]] inline void PrefetchRowsBehind(const uint8_t* row, size_t row_bytes) {
  constexpr size_t kBlocks = kLineBytes / kLaneBytes;
  constexpr size_t kRows = kWideTransposeRows / kBlocks;
  const size_t block = reinterpret_cast<uintptr_t>(row) / kLaneBytes % kBlocks;
  PrefetchRows(row + (kWideTransposeRows + block * kRows) * row_bytes, row_bytes, kRows, 1);
}

// Columns that are not back to back come from a tile in L1.
[[gnu::always_inline]] inline void PrefetchColumnsBehind(const uint8_t* columns,
                                                         size_t column_stride, size_t half) {
  constexpr size_t kColumnBytes = kWideTransposeRows / 2;
  constexpr size_t kLines = kToRowsCols * kColumnBytes / 2 / kLineBytes;
  if (column_stride != kColumnBytes) return;
  PrefetchRows(columns + kToRowsCols * column_stride + half * kLines * kLineBytes, kLineBytes,
               kLines, 1);
}

}  // namespace

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                   uint8_t* columns, size_t column_stride) {
  if (cols < kToColumnsCols) {
    return Below().rows_to_columns(rows, row_bytes, cols, mask, columns, column_stride);
  }
  const Vector masks = Bytes(mask);
  ForPieces(cols, kToColumnsCols, [&](size_t k) {
    PrefetchRowsBehind(rows + k / 2, row_bytes);
    TransposeBlock<Swap::kFirst>(rows + k / 2, row_bytes, kWideTransposeRows / 2 * row_bytes,
                                 columns + k * column_stride, column_stride, masks);
  });
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, uint8_t mask,
                   size_t row_bytes, uint8_t* rows) {
  if (cols < kToRowsCols) {
    return Below().columns_to_rows(columns, column_stride, cols, mask, row_bytes, rows);
  }
  const Vector masks = Bytes(mask);
  ForPieces(cols, kToRowsCols, [&](size_t k) {
    const uint8_t* from = columns + k * column_stride;
    uint8_t* to = rows + k / 2;
    PrefetchColumnsBehind(from, column_stride, 0);
    ColumnsToBlock(from, column_stride, row_bytes, to, masks);
    PrefetchColumnsBehind(from, column_stride, 1);
    ColumnsToBlock(from + kLaneBytes, column_stride, row_bytes, to + kToRowsRows * row_bytes,
                   masks);
  });
}

#endif

#endif

}  // namespace prepack::PREPACK_LEVEL
