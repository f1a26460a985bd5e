#pragma once

// The bodies of nibble_halves.h.
//
// AVX2: 32 columns at a time; the two lanes of a register hold rows n and n + 8.
//
// AVX-512: 64 columns at a time, which fit into the registers and become whole cache lines. Back it
// takes 128 columns at a time, so that each cache line of a row is written once and whole.
//
// Where rows lie two KiB or a multiple of that apart, 16 or all 32 of them share a set of the L1
// cache. They go through a tile (CopyRuns), which at other distances would cost more than it saves.
// AVX-512 does without where it reads rows that are not a multiple of four KiB apart: there it
// takes 128 columns at a time, so that each cache line is read once.
//
// From and to the L2 cache, the loads and stores alone take as long as the whole kernel.

namespace prepack::PREPACK_LEVEL {

namespace {

constexpr size_t kHalvesApart = 16;  // between the rows of a byte

}  // namespace

#ifdef PREPACK_SCALAR

void RowsToHalves(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* halves) {
  for (size_t i = 0; i < cols / 2; ++i) {
    for (size_t n = 0; n < kHalvesApart; ++n) {
      const uint8_t* low = rows + n * row_bytes + i;
      uint8_t* to = halves + i * kHalvesRows + 2 * n;
      SwapNibbles(low[0], low[kHalvesApart * row_bytes], to[0], to[1]);
    }
  }
}

void HalvesToRows(const uint8_t* halves, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t i = 0; i < cols / 2; ++i) {
    for (size_t n = 0; n < kHalvesApart; ++n) {
      const uint8_t* from = halves + i * kHalvesRows + 2 * n;
      uint8_t* low = rows + n * row_bytes + i;
      SwapNibbles(from[0], from[1], low[0], low[kHalvesApart * row_bytes]);
    }
  }
}

#else

namespace {

constexpr size_t kTurnRows = 8;          // those that are transposed together
constexpr size_t kCrowdedStride = 2048;  // of rows

// Eight registers of 16-bit units, lane by lane: unit a of register b becomes unit b of register a.
[[gnu::always_inline]] inline void TurnRows(Vector (&reg)[kTurnRows]) {
  RotateIndex<2, 3>(reg);
}

#ifdef PREPACK_AVX512

// Comments give the place of a byte as the bits of its index: n4 … n0 are those of the row, k6 … k0
// those of the column. A place is (register; lane; byte in the lane). n4 tells the halves of a byte
// apart.

constexpr size_t kColsToHalves = 64;
constexpr size_t kColsToRows = 128;
constexpr size_t kWideColsToHalves = 128;
constexpr size_t kTileStrideToHalves = 4096;              // of rows that go through a tile
constexpr size_t kLaneStride = kLaneBytes * kHalvesRows;  // between the lanes: k6 k5

// Bytes of even columns and of odd ones to pairs of them: for k1 = 0 and for k1 = 1. Shifts leave
// the units that shuffle to what follows.
[[gnu::always_inline]] inline void PairColumns(Vector& even, Vector& odd) {
  const Vector low_bytes = Numbers(0x00FF);
  const Vector first = Select(low_bytes, even, ShiftLeft<8>(odd));
  odd = Select(low_bytes, ShiftRight<8>(even), odd);
  even = first;
}

[[gnu::always_inline]] inline void TileToHalves(const uint8_t* rows, size_t row_bytes,
                                                uint8_t* halves) {
  Vector first[kTurnRows];   // k1 = 0
  Vector second[kTurnRows];  // k1 = 1
#pragma GCC unroll 8
  for (size_t n = 0; n < kTurnRows; ++n) {
    const uint8_t* low = rows + n * row_bytes;
    const uint8_t* high = low + kHalvesApart * row_bytes;
    Vector even = LoadHalves(low, low + kTurnRows * row_bytes);  // (n2 n1 n0; n3 k5; k4 … k1)
    Vector odd = LoadHalves(high, high + kTurnRows * row_bytes);
    SwapNibbles(even, odd);  // now the even columns of both rows, and the odd ones
    PairColumns(even, odd);  // (n2 n1 n0; n3 k5; k4 k3 k2 k0)
    first[n] = even;
    second[n] = odd;
  }
  TurnRows(first);  // (k4 k3 k2; n3 k5; n2 n1 n0 k0)
  TurnRows(second);
  uint8_t* to = halves;
#pragma GCC unroll 8
  for (size_t i = 0; i < kTurnRows; ++i, to += kVectorBytes) {
    // Even lanes, and odd ones: (k5 k4 k3 k2; k1 n3; n2 n1 n0 k0).
    Store(to, _mm512_shuffle_i32x4(first[i], second[i], 0x88));
    Store(to + kTurnRows * kVectorBytes, _mm512_shuffle_i32x4(first[i], second[i], 0xDD));
  }
}

struct HalvesRows {
  Vector reg[kTurnRows];
};

// Rows n2 n1 n0 of n3 = 0 and of n3 = 1, (n2 n1 n0; k6 k5; k4 k3 k2 k0), to columns of one k1.
[[gnu::always_inline]] inline void StoreColumns(HalvesRows& upper, HalvesRows& lower,
                                                uint8_t* halves) {
  TurnRows(upper.reg);  // (k4 k3 k2; k6 k5; n2 n1 n0 k0)
  TurnRows(lower.reg);
#pragma GCC unroll 8
  for (size_t i = 0; i < kTurnRows; ++i) {
    Vector a = upper.reg[i];
    Vector b = lower.reg[i];
    ExchangeLanes(a, b);  // (k5 k4 k3 k2; k6 n3; n2 n1 n0 k0)
    uint8_t* to = halves + 2 * i * kHalvesRows;
    StoreHalves(to, to + 2 * kLaneStride, a);
    StoreHalves(to + kLaneStride, to + 3 * kLaneStride, b);
  }
}

[[gnu::always_inline]] inline void WideTileToHalves(const uint8_t* rows, size_t row_bytes,
                                                    uint8_t* halves) {
  HalvesRows first[2];   // k1 = 0
  HalvesRows second[2];  // k1 = 1
#pragma GCC unroll 16
  for (size_t n = 0; n < 2 * kTurnRows; ++n) {
    Vector even = Load(rows + n * row_bytes);
    Vector odd = Load(rows + (n + kHalvesApart) * row_bytes);
    SwapNibbles(even, odd);
    PairColumns(even, odd);
    first[n / kTurnRows].reg[n % kTurnRows] = even;
    second[n / kTurnRows].reg[n % kTurnRows] = odd;
  }
  StoreColumns(first[0], first[1], halves);
  StoreColumns(second[0], second[1], halves + kHalvesRows);
}

// The inverse of StoreColumns.
[[gnu::always_inline]] inline void LoadColumns(const uint8_t* halves, HalvesRows& upper,
                                               HalvesRows& lower) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kTurnRows; ++i) {
    const uint8_t* from = halves + 2 * i * kHalvesRows;
    upper.reg[i] = LoadHalves(from, from + 2 * kLaneStride);
    lower.reg[i] = LoadHalves(from + kLaneStride, from + 3 * kLaneStride);
    ExchangeLanes(upper.reg[i], lower.reg[i]);
  }
  TurnRows(upper.reg);
  TurnRows(lower.reg);
}

[[gnu::always_inline]] inline void HalvesToTile(const uint8_t* halves, size_t row_bytes,
                                                uint8_t* rows) {
  HalvesRows first[2];   // k1 = 0
  HalvesRows second[2];  // k1 = 1
  LoadColumns(halves, first[0], first[1]);
  LoadColumns(halves + kHalvesRows, second[0], second[1]);
#pragma GCC unroll 16
  for (size_t n = 0; n < 2 * kTurnRows; ++n) {
    Vector even = first[n / kTurnRows].reg[n % kTurnRows];
    Vector odd = second[n / kTurnRows].reg[n % kTurnRows];
    PairColumns(even, odd);
    SwapNibbles(even, odd);
    uint8_t* row = rows + n * row_bytes;
    Store(row, even);
    Store(row + kHalvesApart * row_bytes, odd);
  }
}

#else

constexpr size_t kColsToHalves = 32;
constexpr size_t kColsToRows = 32;
constexpr size_t kTileStrideToHalves = kCrowdedStride;
constexpr size_t kColumnsOfHalf = kColsToHalves / 4;

[[gnu::always_inline]] inline void TileToHalves(const uint8_t* rows, size_t row_bytes,
                                                uint8_t* halves) {
  Vector first[kTurnRows];
  Vector second[kTurnRows];
#pragma GCC unroll 8
  for (size_t n = 0; n < kTurnRows; ++n) {
    const uint8_t* low = rows + n * row_bytes;
    const uint8_t* high = low + kHalvesApart * row_bytes;
    first[n] = LoadTwoLanes(low, low + kTurnRows * row_bytes);
    second[n] = LoadTwoLanes(high, high + kTurnRows * row_bytes);
    ZipNibbles(first[n], second[n]);
  }
  TurnRows(first);
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) Store(halves + i * kHalvesRows, first[i]);
  TurnRows(second);
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) {
    Store(halves + (kColumnsOfHalf + i) * kHalvesRows, second[i]);
  }
}

[[gnu::always_inline]] inline void HalvesToTile(const uint8_t* halves, size_t row_bytes,
                                                uint8_t* rows) {
  Vector first[kTurnRows];
  Vector second[kTurnRows];
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) first[i] = Load(halves + i * kHalvesRows);
  TurnRows(first);
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) {
    second[i] = Load(halves + (kColumnsOfHalf + i) * kHalvesRows);
  }
  TurnRows(second);
#pragma GCC unroll 8
  for (size_t n = 0; n < kTurnRows; ++n) {
    UnzipNibbles(first[n], second[n]);
    uint8_t* low = rows + n * row_bytes;
    uint8_t* high = low + kHalvesApart * row_bytes;
    StoreTwoLanes(low, low + kTurnRows * row_bytes, first[n]);
    StoreTwoLanes(high, high + kTurnRows * row_bytes, second[n]);
  }
}

#endif

// Bytes of a row that go through a tile at a time. CPUs fetch the cache lines of many stores ahead:
// with longer runs these belong to fewer rows, and push each other out less.
constexpr size_t kRunToHalves = 256;
constexpr size_t kRunToRows = 512;

// Not inlined: with the stride of a tile known, g++ 12 makes slower code of it.
[[gnu::noinline]] void NearRowsToHalves(const uint8_t* rows, size_t row_bytes, size_t cols,
                                        uint8_t* halves) {
  size_t k = 0;
#ifdef PREPACK_AVX512
  if (row_bytes % kCrowdedStride == 0) {
    for (; k + kWideColsToHalves <= cols; k += kWideColsToHalves) {
      WideTileToHalves(rows + k / 2, row_bytes, halves + HalvesBytes(k));
    }
  }
#endif
  for (; k + kColsToHalves <= cols; k += kColsToHalves) {
    TileToHalves(rows + k / 2, row_bytes, halves + HalvesBytes(k));
  }
  Below().rows_to_halves(rows + k / 2, row_bytes, cols - k, halves + HalvesBytes(k));
}

[[gnu::noinline]] void HalvesToNearRows(const uint8_t* halves, size_t cols, size_t row_bytes,
                                        uint8_t* rows) {
  size_t k = 0;
  for (; k + kColsToRows <= cols; k += kColsToRows) {
    HalvesToTile(halves + HalvesBytes(k), row_bytes, rows + k / 2);
  }
  Below().halves_to_rows(halves + HalvesBytes(k), cols - k, row_bytes, rows + k / 2);
}

}  // namespace

void RowsToHalves(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* halves) {
  constexpr size_t kRun = kRunToHalves;
  if (row_bytes % kTileStrideToHalves != 0 || cols < 2 * kRun) {
    return NearRowsToHalves(rows, row_bytes, cols, halves);
  }
  alignas(kLineBytes) uint8_t tile[kHalvesRows * kRun];
  ForPieces(cols, 2 * kRun, [&](size_t k) {
    CopyRuns<kRun, kVectorBytes>(rows + k / 2, row_bytes, kHalvesRows, tile, kRun);
    NearRowsToHalves(tile, kRun, 2 * kRun, halves + HalvesBytes(k));
  });
}

void HalvesToRows(const uint8_t* halves, size_t cols, size_t row_bytes, uint8_t* rows) {
  constexpr size_t kRun = kRunToRows;
  if (row_bytes % kCrowdedStride != 0 || cols < 2 * kRun) {
    return HalvesToNearRows(halves, cols, row_bytes, rows);
  }
  alignas(kLineBytes) uint8_t tile[kHalvesRows * kRun];
  ForPieces(cols, 2 * kRun, [&](size_t k) {
    HalvesToNearRows(halves + HalvesBytes(k), 2 * kRun, kRun, tile);
    CopyRuns<kRun, kVectorBytes>(tile, kRun, kHalvesRows, rows + k / 2, row_bytes);
  });
}

#endif

}  // namespace prepack::PREPACK_LEVEL
