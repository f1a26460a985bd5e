#pragma once

// The bodies of nibble_pairs.h. The sums are taken while the codes are in registers.
//
// AVX2 and NEON: tiles of 16 rows by 32 columns: eight pairs of rows, of which the two lanes hold
// four each. Rows that lie far apart go through a tile run by run. Blocks of no whole number of
// tiles are left to the scalar twin: few checkpoints have such groups.
//
// AVX-512 goes another way, with other loops: blocks of 128 columns, the most that a layout has, in
// tiles of 16 rows, which fill halves of the 64 bytes of each four columns. So each cache line of a
// row is read, or written, once and whole, and no run is needed. Other blocks are left to AVX2.

namespace prepack::PREPACK_LEVEL {

namespace {

constexpr size_t kPairsApart = 8;  // between the channels of a byte

}  // namespace

#ifdef PREPACK_SCALAR

namespace {

// The first of the two channels in the i-th byte of a column.
constexpr size_t LowChannel(size_t i) {
  return i / kPairsApart * 2 * kPairsApart + i % kPairsApart;
}

void RowsToPairBlock(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  for (size_t i = 0; i < kPairRows / 2; ++i) {
    const uint8_t* low = rows + LowChannel(i) * row_bytes;
    const uint8_t* high = low + kPairsApart * row_bytes;
    for (size_t k = 0; k < cols; k += 2) {
      uint8_t* to = pairs + k / kPairCols * kPairStepBytes + i * kPairCols + k % kPairCols;
      SwapNibbles(low[k / 2], high[k / 2], to[0], to[1]);
    }
  }
}

void PairBlockToRows(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t i = 0; i < kPairRows / 2; ++i) {
    uint8_t* low = rows + LowChannel(i) * row_bytes;
    uint8_t* high = low + kPairsApart * row_bytes;
    for (size_t k = 0; k < cols; k += 2) {
      const uint8_t* from = pairs + k / kPairCols * kPairStepBytes + i * kPairCols + k % kPairCols;
      SwapNibbles(from[0], from[1], low[k / 2], high[k / 2]);
    }
  }
}

int32_t SumRow(const uint8_t* row, size_t cols) {
  int32_t sum = 0;
  for (size_t i = 0; i < cols / 2; ++i) sum += (row[i] & 0x0F) + (row[i] >> 4);
  return sum;
}

}  // namespace

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                 uint8_t* pairs) {
  for (size_t block = 0; block < blocks; ++block) {
    RowsToPairBlock(rows, row_bytes, cols, pairs);
    for (size_t n = 0; n < kPairRows; ++n) {
      const int32_t sum = SumRow(rows + n * row_bytes, cols);
      std::memcpy(pairs + PairCodeBytes(cols) + n * sizeof sum, &sum, sizeof sum);
    }
    rows += cols / 2;
    pairs += PairBlockBytes(cols);
  }
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  for (size_t block = 0; block < blocks; ++block) {
    PairBlockToRows(pairs, cols, row_bytes, rows);
    rows += cols / 2;
    pairs += PairBlockBytes(cols);
  }
}

#else

namespace {

constexpr size_t kTileRows = 16;
constexpr size_t kQuarter = 4;  // rows of a tile that lie in different registers

// Sums for the rows of a tile, each in parts.
struct PairSums {
  Vector low;    // of low halves: in bytes
  Vector total;  // of whole bytes: in 16 bits

  [[gnu::always_inline]] void Add(Vector codes) {
    low = Add8(low, And(codes, Bytes(0x0F)));
    total = Add16(total, AddTwos(codes));
  }
};
static_assert(kMostPairCols / 2 * 0xFF <= 0xFFFF, "totals fit into 16 bits");

[[gnu::always_inline]] inline void StoreStep(uint8_t* to, Vector step);

// 32 columns of each lane's rows, which are low halves and high ones, to bytes of four columns
// each.
[[gnu::always_inline]] inline void RowsToSteps(Vector (&low)[kQuarter], Vector (&high)[kQuarter],
                                               uint8_t* pairs, PairSums& sums) {
  for (size_t i = 0; i < kQuarter; ++i) ZipNibbles(low[i], high[i]);  // to columns 0 …, and 16 …
  RotateIndex<4, 2>(low);  // word a of register b becomes word b of register a, lane by lane
  RotateIndex<4, 2>(high);
  for (size_t i = 0; i < kQuarter; ++i) {
    StoreStep(pairs + i * kPairStepBytes, low[i]);
    StoreStep(pairs + (i + kQuarter) * kPairStepBytes, high[i]);
  }
  for (size_t i = 0; i < kQuarter; ++i) {
    sums.Add(low[i]);
    sums.Add(high[i]);
  }
}

// The inverse.
[[gnu::always_inline]] inline void StepsToRows(Vector (&low)[kQuarter], Vector (&high)[kQuarter]) {
  RotateIndex<4, 2>(low);
  RotateIndex<4, 2>(high);
  for (size_t i = 0; i < kQuarter; ++i) UnzipNibbles(low[i], high[i]);
}

}  // namespace

#ifdef PREPACK_AVX512

// Comments give the place of a byte as the bits of its index: n4 … n0 are those of the row, k6 … k0
// those of the column. A place is (register; lane; byte in the lane). n3 tells the halves of a byte
// apart, n4 the halves of 64 bytes.

namespace {

constexpr size_t kBlockCols = 128;
constexpr size_t kHalf = 32;      // bytes
constexpr size_t kRunBlocks = 8;  // see ForTiles
static_assert(kBlockCols / kPairCols / 2 * 0x0F <= 0xFF, "a byte holds the sum of low halves");

[[gnu::always_inline]] inline void StoreStep(uint8_t* to, Vector step) {
  StoreHalves(to, to + PairCodeBytes(kBlockCols / 2), step);
}

// The sum of a row of high halves is what low halves leave of that of whole bytes.
[[gnu::always_inline]] inline void StoreSums(const PairSums& sums, uint8_t* to) {
  const Vector of_low = AddTwos(sums.low);
  const Vector of_high = ShiftRight<4>(Sub16(sums.total, of_low));
  const Vector low = AddFours(of_low);
  const Vector high = AddFours(of_high);
  Store(to, _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x44),
                             _mm512_shuffle_i32x4(low, high, 0xEE)));
}

[[gnu::always_inline]] inline void TileToPairs(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* pairs, uint8_t* to_sums) {
  Vector left[2][kQuarter];   // k5 = 0
  Vector right[2][kQuarter];  // k5 = 1
  for (size_t n3 = 0; n3 < 2; ++n3) {
    for (size_t i = 0; i < kQuarter; ++i) {
      const uint8_t* from = rows + (n3 * kPairsApart + i) * row_bytes;
      left[n3][i] = Load(from);
      right[n3][i] = Load(from + kQuarter * row_bytes);
      ExchangeLanes(left[n3][i], right[n3][i]);  // (n1 n0; k6 n2; k4 k3 k2 k1)
    }
  }
  PairSums sums = {Bytes(0), Bytes(0)};
  RowsToSteps(left[0], left[1], pairs, sums);
  RowsToSteps(right[0], right[1], pairs + PairCodeBytes(kBlockCols / 4), sums);
  StoreSums(sums, to_sums);
}

[[gnu::always_inline]] inline void PairsToTile(const uint8_t* pairs, size_t row_bytes,
                                               uint8_t* rows) {
  Vector upper[2][kQuarter];  // n2 = 0
  Vector lower[2][kQuarter];  // n2 = 1
  for (size_t k4 = 0; k4 < 2; ++k4) {
    for (size_t i = 0; i < kQuarter; ++i) {
      const uint8_t* left = pairs + (k4 * kQuarter + i) * kPairStepBytes;  // k5 = 0
      const uint8_t* right = left + PairCodeBytes(kBlockCols / 4);
      upper[k4][i] = LoadHalves(left, left + PairCodeBytes(kBlockCols / 2));
      lower[k4][i] = LoadHalves(right, right + PairCodeBytes(kBlockCols / 2));
      ExchangeLanes(upper[k4][i], lower[k4][i]);
    }
  }
  StepsToRows(upper[0], upper[1]);
  StepsToRows(lower[0], lower[1]);
  for (size_t n3 = 0; n3 < 2; ++n3) {
    for (size_t i = 0; i < kQuarter; ++i) {
      uint8_t* to = rows + (n3 * kPairsApart + i) * row_bytes;
      Store(to, upper[n3][i]);
      Store(to + kQuarter * row_bytes, lower[n3][i]);
    }
  }
}

// The first 16 rows of some blocks, then the others of the same: the fewer rows take turns, the
// better caches follow them. The blocks stay in an L1 cache meanwhile. `work` is to be inlined:
// else constants are loaded for each tile, which costs a tenth.
template <typename Work>
[[gnu::always_inline]] inline void ForTiles(size_t blocks, const Work& work) {
  for (size_t first = 0; first < blocks; first += kRunBlocks) {
    const size_t end = first + kRunBlocks < blocks ? first + kRunBlocks : blocks;
    for (size_t n = 0; n < kPairRows; n += kTileRows) {
      for (size_t block = first; block < end; ++block) work(block, n);
    }
  }
}

}  // namespace

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                 uint8_t* pairs) {
  if (cols != kBlockCols) {
    return Below().rows_to_pairs(rows, row_bytes, cols, blocks, pairs);
  }
  ForTiles(
      blocks, [&](size_t block, size_t n) __attribute__((always_inline)) {
        uint8_t* to = pairs + block * PairBlockBytes(kBlockCols);
        TileToPairs(rows + n * row_bytes + block * kBlockCols / 2, row_bytes,
                    to + n / kTileRows * kHalf,
                    to + PairCodeBytes(kBlockCols) + n * sizeof(int32_t));
      });
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  if (cols != kBlockCols) {
    return Below().pairs_to_rows(pairs, cols, blocks, row_bytes, rows);
  }
  ForTiles(
      blocks, [&](size_t block, size_t n) __attribute__((always_inline)) {
        PairsToTile(pairs + block * PairBlockBytes(kBlockCols) + n / kTileRows * kHalf, row_bytes,
                    rows + n * row_bytes + block * kBlockCols / 2);
      });
}

#else

namespace {

constexpr size_t kTileCols = 32;

// Of a row; with what is made of it, a tile of them fits into an L1 cache.
constexpr size_t kPairsRunBytes = 256;
constexpr size_t kPairsRunCols = 2 * kPairsRunBytes;

[[gnu::always_inline]] inline void StoreStep(uint8_t* to, Vector step) {
  Store(to, step);
}

// Of rows 0 … 7, then of rows 8 … 15: 16 times those are what low halves leave of whole bytes.
// Here low halves, too, have been added up in 16 bits.
[[gnu::always_inline]] inline void StoreSums(const PairSums& sums, uint8_t* to) {
  const Vector high = ShiftRight<4>(Sub16(sums.total, sums.low));
  Store(to, AddFours(sums.low));
  Store(to + kVectorBytes, AddFours(high));
}

[[gnu::always_inline]] inline void TileToPairs(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* pairs, PairSums& sums) {
  Vector low[kQuarter];
  Vector high[kQuarter];
  for (size_t i = 0; i < kQuarter; ++i) {
    const uint8_t* from = rows + i * row_bytes;
    low[i] = LoadTwoLanes(from, from + kQuarter * row_bytes);
    from += kPairsApart * row_bytes;
    high[i] = LoadTwoLanes(from, from + kQuarter * row_bytes);
  }
  PairSums own = {Bytes(0), sums.total};  // bytes hold eight codes of up to 15
  RowsToSteps(low, high, pairs, own);
  sums = {Add16(sums.low, AddTwos(own.low)), own.total};
}

[[gnu::always_inline]] inline void PairsToTile(const uint8_t* pairs, size_t row_bytes,
                                               uint8_t* rows) {
  Vector low[kQuarter];
  Vector high[kQuarter];
  for (size_t i = 0; i < kQuarter; ++i) {
    const uint8_t* from = pairs + i * kPairStepBytes;
    low[i] = Load(from);
    high[i] = Load(from + kQuarter * kPairStepBytes);
  }
  StepsToRows(low, high);
  for (size_t i = 0; i < kQuarter; ++i) {
    uint8_t* to = rows + i * row_bytes;
    StoreTwoLanes(to, to + kQuarter * row_bytes, low[i]);
    to += kPairsApart * row_bytes;
    StoreTwoLanes(to, to + kQuarter * row_bytes, high[i]);
  }
}

void RowsToPairBlock(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  PairSums upper = {Bytes(0), Bytes(0)};
  PairSums lower = {Bytes(0), Bytes(0)};
  for (size_t k = 0; k < cols; k += kTileCols) {
    const uint8_t* from = rows + k / 2;
    uint8_t* to = pairs + PairCodeBytes(k);
    TileToPairs(from, row_bytes, to, upper);
    TileToPairs(from + kTileRows * row_bytes, row_bytes, to + kPairStepBytes / 2, lower);
  }
  uint8_t* to = pairs + PairCodeBytes(cols);
  StoreSums(upper, to);
  StoreSums(lower, to + kTileRows * sizeof(int32_t));
}

void PairBlockToRows(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t k = 0; k < cols; k += kTileCols) {
    const uint8_t* from = pairs + PairCodeBytes(k);
    uint8_t* to = rows + k / 2;
    PairsToTile(from, row_bytes, to);
    PairsToTile(from + kPairStepBytes / 2, row_bytes, to + kTileRows * row_bytes);
  }
}

void RowsToBlocks(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                  uint8_t* pairs) {
  for (size_t block = 0; block < blocks; ++block) {
    RowsToPairBlock(rows + block * cols / 2, row_bytes, cols, pairs + block * PairBlockBytes(cols));
  }
}

void BlocksToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                  uint8_t* rows) {
  for (size_t block = 0; block < blocks; ++block) {
    PairBlockToRows(pairs + block * PairBlockBytes(cols), cols, row_bytes, rows + block * cols / 2);
  }
}

// Do the rows lie far apart, and are they long enough to go through a tile by runs, which hold
// whole blocks?
bool ByRuns(size_t row_bytes, size_t cols, size_t blocks) {
  return row_bytes > kPairsRunBytes && kPairsRunCols % cols == 0 && blocks * cols >= kPairsRunCols;
}

}  // namespace

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                 uint8_t* pairs) {
  if (cols % kTileCols != 0) {
    return Below().rows_to_pairs(rows, row_bytes, cols, blocks, pairs);
  }
  if (!ByRuns(row_bytes, cols, blocks)) return RowsToBlocks(rows, row_bytes, cols, blocks, pairs);
  alignas(kLineBytes) uint8_t tile[kPairRows * kPairsRunBytes];
  const size_t run = kPairsRunCols / cols;
  ForPieces(blocks, run, [&](size_t block) {
    CopyRuns<kPairsRunBytes>(rows + block * cols / 2, row_bytes, kPairRows, tile, kPairsRunBytes);
    RowsToBlocks(tile, kPairsRunBytes, cols, run, pairs + block * PairBlockBytes(cols));
  });
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  if (cols % kTileCols != 0) {
    return Below().pairs_to_rows(pairs, cols, blocks, row_bytes, rows);
  }
  if (!ByRuns(row_bytes, cols, blocks)) return BlocksToRows(pairs, cols, blocks, row_bytes, rows);
  alignas(kLineBytes) uint8_t tile[kPairRows * kPairsRunBytes];
  const size_t run = kPairsRunCols / cols;
  ForPieces(blocks, run, [&](size_t block) {
    BlocksToRows(pairs + block * PairBlockBytes(cols), cols, run, kPairsRunBytes, tile);
    CopyRuns<kPairsRunBytes>(tile, kPairsRunBytes, kPairRows, rows + block * cols / 2, row_bytes);
  });
}

#endif

#endif

}  // namespace prepack::PREPACK_LEVEL
