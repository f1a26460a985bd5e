#pragma once

// The body of byte_sort.h. Registers are made of the words where they are looked up: to put these
// into memory first, and then load them, would take three times as long.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

void SortBytes(const int8_t* from, size_t rows, size_t count, const uint32_t* places,
               uint64_t* /*words*/, int8_t* sorted) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < count; ++i) sorted[row * count + i] = from[row * count + places[i]];
  }
}

#else

namespace {

// What eight rows have at kVectorBytes places. Of words, a register holds those of places in order.
struct EightRows {
  Vector reg[kSortedRows];

  static constexpr size_t kWords = kVectorBytes / sizeof(uint64_t);

  // The first place of what register i holds of words: lane by lane they are pairs of places, and
  // lanes are then brought together.
  static constexpr size_t FirstPlace(size_t i) {
    return i % kLanes * kLaneBytes + i / kLanes * kWords;
  }

  // Between pairs of places, lane by lane, and places in order. Its own inverse.
  [[gnu::always_inline]] void TurnLanes() {
#pragma GCC unroll 4
    for (size_t i = 0; i < kSortedRows; i += kLanes) {
#ifdef PREPACK_AVX512
      TransposeLanes(reg[i], reg[i + 1], reg[i + 2], reg[i + 3]);
#else
      const Vector first = FirstLanes(reg[i], reg[i + 1]);
      reg[i + 1] = SecondLanes(reg[i], reg[i + 1]);
      reg[i] = first;
#endif
    }
  }
};

[[gnu::always_inline]] inline void JoinRows(const int8_t* from, size_t stride, uint64_t* words) {
  EightRows rows;
  for (size_t i = 0; i < kSortedRows; ++i) rows.reg[i] = Load(from + i * stride);
  // From [row | place] to [place / 2 | place % 2, row].
  RotateIndex<1, 3>(rows.reg);
  rows.TurnLanes();
  for (size_t i = 0; i < kSortedRows; ++i) Store(words + EightRows::FirstPlace(i), rows.reg[i]);
}

[[gnu::always_inline]] inline Lane LoadPair(const uint64_t* words, const uint32_t* places) {
  return JoinHalves(words + places[0], words + places[1]);
}

[[gnu::always_inline]] inline Vector LookUp(const uint64_t* words, const uint32_t* places) {
#ifdef PREPACK_AVX512
  return JoinLanes(LoadPair(words, places), LoadPair(words, places + 2),
                   LoadPair(words, places + 4), LoadPair(words, places + 6));
#else
  return JoinLanes(LoadPair(words, places), LoadPair(words, places + 2));
#endif
}

[[gnu::always_inline]] inline void SplitRows(const uint64_t* words, const uint32_t* places,
                                             size_t stride, int8_t* to) {
  EightRows rows;
#pragma GCC unroll 8
  for (size_t i = 0; i < kSortedRows; ++i) {
    rows.reg[i] = LookUp(words, places + EightRows::FirstPlace(i));
  }
  rows.TurnLanes();
  RotateIndex<1, 4>(rows.reg);
  for (size_t i = 0; i < kSortedRows; ++i) Store(to + i * stride, rows.reg[i]);
}

}  // namespace

void SortBytes(const int8_t* from, size_t rows, size_t count, const uint32_t* places,
               uint64_t* words, int8_t* sorted) {
  if (rows != kSortedRows || count < kVectorBytes) {
    return Below().sort_bytes(from, rows, count, places, words, sorted);
  }
  ForPieces(count, kVectorBytes, [&](size_t i) { JoinRows(from + i, count, words + i); });
  ForPieces(count, kVectorBytes,
            [&](size_t i) { SplitRows(words, places + i, count, sorted + i); });
}

#endif

}  // namespace prepack::PREPACK_LEVEL
