// AVX-512: 16 rows by 128 columns at a time.
//
// Comments give the place of a byte as the bits of its index: c6 … c0 are those of the column, p2
// p1 p0 those of the pair of rows. A place is (register; lane; byte in the lane).

#include "prepack/kernels/nibble_transpose.h"
#include "prepack/kernels/prefetch.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kCols = 2 * kZmmBytes;
constexpr size_t kPairs = kTransposeRows / 2;
constexpr size_t kWordBytes = kTransposeWordBytes;

// Half of what a step takes: of its columns, or of the pairs of rows.
struct Half {
  __m512i reg[kPairs];
};

// The words of two neighbouring columns.
[[gnu::always_inline]] inline void StoreTwo(uint8_t* to, size_t stride, __m128i words) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), words);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + stride), _mm_unpackhi_epi64(words, words));
}

[[gnu::always_inline]] inline __m128i LoadTwo(const uint8_t* from, size_t stride) {
  return _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)),
                            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + stride)));
}

// The words of eight columns.
template <bool kDense>
[[gnu::always_inline]] inline void StoreWords(uint8_t* to, size_t stride, __m512i words) {
  if constexpr (kDense) {
    Store(to, words);
  } else {
    StoreTwo(to, stride, _mm512_castsi512_si128(words));
    StoreTwo(to + 2 * stride, stride, _mm512_extracti32x4_epi32(words, 1));
    StoreTwo(to + 4 * stride, stride, _mm512_extracti32x4_epi32(words, 2));
    StoreTwo(to + 6 * stride, stride, _mm512_extracti32x4_epi32(words, 3));
  }
}

template <bool kDense>
[[gnu::always_inline]] inline __m512i LoadWords(const uint8_t* from, size_t stride) {
  if constexpr (kDense) return Load(from);
  return JoinLanes(LoadTwo(from, stride), LoadTwo(from + 2 * stride, stride),
                   LoadTwo(from + 4 * stride, stride), LoadTwo(from + 6 * stride, stride));
}

// (c0 p1 p0; p2 c5; c4 c3 c2 c1) for c6 = 0 and for c6 = 1. Both come from the same cache lines.
[[gnu::always_inline]] inline void LoadRows(const uint8_t* rows, size_t row_bytes, Half& first,
                                            Half& second) {
  for (size_t pair = 0; pair < kPairs / 2; ++pair) {
    const uint8_t* row = rows + 2 * pair * row_bytes;
    const uint8_t* far = row + kPairs * row_bytes;
    for (size_t c6 = 0; c6 < 2; ++c6) {
      const size_t at = c6 * kZmmBytes / 2;
      __m512i even = LoadHalves(row + at, far + at);
      __m512i odd = LoadHalves(row + row_bytes + at, far + row_bytes + at);
      SwapNibbles(even, odd);  // now the even columns of both rows, and the odd ones
      Half& half = c6 == 0 ? first : second;
      half.reg[pair] = even;
      half.reg[pair + kPairs / 2] = odd;
    }
  }
}

template <bool kDense>
[[gnu::always_inline]] inline void StoreColumns(Half& half, uint8_t* columns, size_t stride) {
  for (size_t i = 0; i < 3; ++i) RotateIndex<1>(half.reg);  // (c4 c3 c2; p2 c5; c1 c0 p1 p0)
  // 32-bit numbers of two registers to (c2 c1; c0 p2), for c5 = 0
  const __m512i gather =
      _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
  const __m512i gather_next = _mm512_add_epi32(gather, _mm512_set1_epi32(4));  // for c5 = 1
  for (size_t i = 0; i < kPairs; i += 2) {
    const __m512i a = half.reg[i];
    const __m512i b = half.reg[i + 1];
    uint8_t* to = columns + 4 * i * stride;
    StoreWords<kDense>(to, stride, _mm512_permutex2var_epi32(a, gather, b));
    StoreWords<kDense>(to + kCols / 4 * stride, stride,
                       _mm512_permutex2var_epi32(a, gather_next, b));
  }
}

template <bool kDense>
void ToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
               size_t stride) {
  for (size_t k = 0; k < cols; k += kCols) {
    Half first;
    Half second;
    LoadRows(rows + k / 2, row_bytes, first, second);
    StoreColumns<kDense>(first, columns + k * stride, stride);
    StoreColumns<kDense>(second, columns + (k + kCols / 2) * stride, stride);
  }
}

// For each 16-bit number of (c6 c5; c4 c3 c2) its place in two registers of (c3; c6 c2; p0 c5 c4),
// of which the one for p0 = 0 is meant.
struct WordPlaces {
  alignas(kZmmBytes) uint16_t place[kZmmBytes / 2];
  constexpr WordPlaces() : place() {
    for (size_t i = 0; i < kZmmBytes / 2; ++i) {
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
void ToRows(const uint8_t* columns, size_t stride, size_t cols, size_t row_bytes, uint8_t* rows) {
  const __m512i gather = Load(kWordPlaces.place);
  const __m512i gather_next = _mm512_add_epi16(gather, _mm512_set1_epi16(4));  // for p0 = 1
  for (size_t k = 0; k < cols; k += kCols) {
    __m512i reg[2 * kPairs];
    for (size_t i = 0; i < kPairs; ++i) {  // (c6 c5 c4 c3; c2 c1; c0 p2 p1 p0)
      const uint8_t* from = columns + (k + 8 * i) * stride;
      const __m512i a = LoadWords<kDense>(from, stride);
      const __m512i b = LoadWords<kDense>(from + kCols / 2 * stride, stride);
      reg[i] = _mm512_shuffle_i32x4(a, b, 0x88);
      reg[i + kPairs] = _mm512_shuffle_i32x4(a, b, 0xDD);
    }                     // (c1 c5 c4 c3; c6 c2; c0 p2 p1 p0)
    RotateIndex<1>(reg);  // (c5 c4 c3 c0; c6 c2; p2 p1 p0 c1)
    RotateIndex<2>(reg);  // (c4 c3 c0 p2; c6 c2; p1 p0 c5 c1)
    RotateIndex<2>(reg);  // (c3 c0 p2 p1; c6 c2; p0 c5 c4 c1)
    for (size_t i = 0; i < kPairs / 2; ++i) {
      for (size_t p0 = 0; p0 < 2; ++p0) {  // (c0 p2 p1 p0; c6 c5; c4 c3 c2 c1)
        const __m512i places = p0 == 0 ? gather : gather_next;
        __m512i even = _mm512_permutex2var_epi16(reg[i], places, reg[i + kPairs]);
        __m512i odd =
            _mm512_permutex2var_epi16(reg[i + kPairs / 2], places, reg[i + kPairs + kPairs / 2]);
        SwapNibbles(even, odd);
        uint8_t* row = rows + (4 * i + 2 * p0) * row_bytes + k / 2;
        Store(row, even);
        Store(row + row_bytes, odd);
        PrefetchRows(row + kZmmBytes, row_bytes, 2, kZmmBytes);
      }
    }
  }
}

size_t WholeSteps(size_t cols) {
  return cols / kCols * kCols;
}

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
                   size_t column_stride) {
  const size_t whole = WholeSteps(cols);
  const auto to_columns = column_stride == kWordBytes ? ToColumns<true> : ToColumns<false>;
  to_columns(rows, row_bytes, whole, columns, column_stride);
  kNibbleTransposeAvx2.rows_to_columns(rows + whole / 2, row_bytes, cols - whole,
                                       columns + whole * column_stride, column_stride);
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, size_t row_bytes,
                   uint8_t* rows) {
  const size_t whole = WholeSteps(cols);
  const auto to_rows = column_stride == kWordBytes ? ToRows<true> : ToRows<false>;
  to_rows(columns, column_stride, whole, row_bytes, rows);
  kNibbleTransposeAvx2.columns_to_rows(columns + whole * column_stride, column_stride, cols - whole,
                                       row_bytes, rows + whole / 2);
}

}  // namespace

const NibbleTranspose kNibbleTransposeAvx512 = {RowsToColumns, ColumnsToRows};

}  // namespace prepack
