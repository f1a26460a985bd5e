#ifndef PREPACK_KERNELS_NIBBLE_PAIRS_BODY_H_
#define PREPACK_KERNELS_NIBBLE_PAIRS_BODY_H_

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

// Word a of register b becomes word b of register a, lane by lane. Its own inverse.
[[gnu::always_inline]] inline void TransposeQuads(Vector (&reg)[4]) {
  RotateIndex<4>(reg);
  RotateIndex<4>(reg);
}

}  // namespace

#ifdef PREPACK_AVX512

// Comments give the place of a byte as the bits of its index: n4 … n0 are those of the row, k6 … k0
// those of the column. A place is (register; lane; byte in the lane). n3 tells the halves of a byte
// apart, n4 the halves of 64 bytes.

namespace {

constexpr size_t kBlockCols = 128;
constexpr size_t kQuarter = 4;    // rows of a tile that go through the registers together
constexpr size_t kSteps = 8;      // four columns each, k4 k3 k2
constexpr size_t kHalf = 32;      // bytes
constexpr size_t kRunBlocks = 8;  // see ForTiles

// Sums for the rows of a tile, in the order n2 n1 n0, each in parts.
struct Sums {
  Vector low;    // of low halves, which hold rows with n3 = 0: in bytes
  Vector total;  // of whole bytes: in 16 bits

  [[gnu::always_inline]] void Add(Vector codes) {
    low = Add8(low, And(codes, Bytes(0x0F)));
    total = Add16(total, AddTwos(codes));
  }
};
static_assert(kBlockCols / kPairCols / 2 * 0x0F <= 0xFF, "a byte holds what is added to it");

// The sum of a row of high halves is what low halves leave of that of whole bytes.
[[gnu::always_inline]] inline void StoreSums(const Sums& sums, uint8_t* to) {
  const Vector of_low = AddTwos(sums.low);
  const Vector of_high = ShiftRight<4>(Sub16(sums.total, of_low));
  const Vector low = AddFours(of_low);
  const Vector high = AddFours(of_high);
  Store(to, _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x44),
                             _mm512_shuffle_i32x4(low, high, 0xEE)));
}

// Four registers (n1 n0; k6 n2; k3 k2 k1 k0) to bytes of four columns each.
[[gnu::always_inline]] inline void StoreSteps(Vector (&reg)[kQuarter], uint8_t* pairs, Sums& sums) {
  TransposeQuads(reg);  // (k3 k2; k6 n2; n1 n0 k1 k0)
  for (size_t i = 0; i < kQuarter; ++i) {
    uint8_t* to = pairs + i * kPairStepBytes;
    StoreHalves(to, to + PairCodeBytes(kBlockCols / 2), reg[i]);
    sums.Add(reg[i]);
  }
}

// (n3 n1 n0; k6 n2; k4 k3 k2 k1)
[[gnu::always_inline]] inline void RowsToSteps(Vector (&reg)[2 * kQuarter], uint8_t* pairs,
                                               Sums& sums) {
  Vector low[kQuarter];   // k4 = 0
  Vector high[kQuarter];  // k4 = 1
  for (size_t i = 0; i < kQuarter; ++i) {
    SwapNibbles(reg[i], reg[i + kQuarter]);  // now the even columns of both rows, and the odd ones
    low[i] = UnpackLow<1>(reg[i], reg[i + kQuarter]);
    high[i] = UnpackHigh<1>(reg[i], reg[i + kQuarter]);
  }
  StoreSteps(low, pairs, sums);
  StoreSteps(high, pairs + kQuarter * kPairStepBytes, sums);
}

[[gnu::always_inline]] inline void TileToPairs(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* pairs, uint8_t* to_sums) {
  Vector left[2 * kQuarter];   // k5 = 0
  Vector right[2 * kQuarter];  // k5 = 1
  for (size_t i = 0; i < 2 * kQuarter; ++i) {
    const uint8_t* from = rows + (i / kQuarter * kPairsApart + i % kQuarter) * row_bytes;
    left[i] = Load(from);
    right[i] = Load(from + kQuarter * row_bytes);
    ExchangeLanes(left[i], right[i]);  // (n3 n1 n0; k6 n2; k4 k3 k2 k1)
  }
  Sums sums = {Bytes(0), Bytes(0)};
  RowsToSteps(left, pairs, sums);
  RowsToSteps(right, pairs + PairCodeBytes(kBlockCols / 4), sums);
  StoreSums(sums, to_sums);
}

// (k4 k3 k2; k6 k5; n1 n0 k1 k0) to 128 columns of four rows, and of those that share bytes with
// them.
[[gnu::always_inline]] inline void StepsToRows(Vector (&reg)[kSteps], size_t row_bytes,
                                               uint8_t* rows) {
  const Vector by_parity = Repeat(LaneOf<0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15>());
  for (Vector& codes : reg) codes = ShuffleBytes(codes, by_parity);  // (…; k0 n1 n0 k1)
  for (size_t i = 0; i < 3; ++i) RotateIndex<2>(reg);  // (k0 n1 n0; k6 k5; k4 k3 k2 k1)
  for (size_t i = 0; i < kQuarter; ++i) {
    Vector even = reg[i];
    Vector odd = reg[i + kQuarter];
    SwapNibbles(even, odd);
    Store(rows + i * row_bytes, even);
    Store(rows + (i + kPairsApart) * row_bytes, odd);
  }
}

[[gnu::always_inline]] inline void PairsToTile(const uint8_t* pairs, size_t row_bytes,
                                               uint8_t* rows) {
  Vector upper[kSteps];  // n2 = 0
  Vector lower[kSteps];  // n2 = 1
  for (size_t i = 0; i < kSteps; ++i) {
    const uint8_t* left = pairs + i * kPairStepBytes;  // k5 = 0
    const uint8_t* right = left + PairCodeBytes(kBlockCols / 4);
    upper[i] = LoadHalves(left, left + PairCodeBytes(kBlockCols / 2));
    lower[i] = LoadHalves(right, right + PairCodeBytes(kBlockCols / 2));
    ExchangeLanes(upper[i], lower[i]);
  }
  StepsToRows(upper, row_bytes, rows);
  StepsToRows(lower, row_bytes, rows + kQuarter * row_bytes);
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
constexpr size_t kLanePairs = 4;

// Of a row; with what is made of it, a tile of them fits into an L1 cache.
constexpr size_t kPairsRunBytes = 256;
constexpr size_t kPairsRunCols = 2 * kPairsRunBytes;

// The bytes of four pairs per lane: columns 0 … 15 in `low`, 16 … 31 in `high`.
struct PairTile {
  Vector low[kLanePairs];
  Vector high[kLanePairs];
};

// Sums for 16 rows of a block, in 16 bits, each of a half of four columns.
struct Sums {
  Vector low;    // of the codes of rows 0 … 7, which are low halves
  Vector total;  // of whole bytes
};
static_assert(kMostPairCols / 2 * 0xFF <= 0xFFFF, "totals fit into 16 bits");

[[gnu::always_inline]] inline void AddCodes(const PairTile& tile, Sums& sums) {
  Vector low = Bytes(0);  // in bytes, which hold eight codes of up to 15
  for (size_t i = 0; i < kLanePairs; ++i) {
    for (const Vector& codes : {tile.low[i], tile.high[i]}) {
      low = Add8(low, And(codes, Bytes(0x0F)));
      sums.total = Add16(sums.total, AddTwos(codes));
    }
  }
  sums.low = Add16(sums.low, AddTwos(low));
}

// Of rows 0 … 7, then of rows 8 … 15: 16 times those are what low halves leave of whole bytes.
[[gnu::always_inline]] inline void StoreSums(const Sums& sums, uint8_t* to) {
  const Vector high = ShiftRight<4>(Sub16(sums.total, sums.low));
  Store(to, AddFours(sums.low));
  Store(to + kVectorBytes, AddFours(high));
}

[[gnu::always_inline]] inline void TileToPairs(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* pairs, Sums& sums) {
  PairTile tile;
  for (size_t i = 0; i < kLanePairs; ++i) {
    const uint8_t* low = rows + i * row_bytes;
    const uint8_t* high = rows + (i + kLanePairs) * row_bytes;
    Vector even = LoadTwoLanes(low, high);
    Vector odd = LoadTwoLanes(low + kPairsApart * row_bytes, high + kPairsApart * row_bytes);
    SwapNibbles(even, odd);
    tile.low[i] = UnpackLow<1>(even, odd);
    tile.high[i] = UnpackHigh<1>(even, odd);
  }
  TransposeQuads(tile.low);
  TransposeQuads(tile.high);
  for (size_t i = 0; i < kLanePairs; ++i) {
    uint8_t* to = pairs + i * kPairStepBytes;
    Store(to, tile.low[i]);
    Store(to + kLanePairs * kPairStepBytes, tile.high[i]);
  }
  AddCodes(tile, sums);
}

[[gnu::always_inline]] inline void PairsToTile(const uint8_t* pairs, size_t row_bytes,
                                               uint8_t* rows) {
  const Vector by_parity = Repeat(LaneOf<0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15>());
  PairTile tile;
  for (size_t i = 0; i < kLanePairs; ++i) {
    const uint8_t* from = pairs + i * kPairStepBytes;
    tile.low[i] = Load(from);
    tile.high[i] = Load(from + kLanePairs * kPairStepBytes);
  }
  TransposeQuads(tile.low);
  TransposeQuads(tile.high);
  for (size_t i = 0; i < kLanePairs; ++i) {
    const Vector a = ShuffleBytes(tile.low[i], by_parity);
    const Vector b = ShuffleBytes(tile.high[i], by_parity);
    Vector even = UnpackLow<8>(a, b);
    Vector odd = UnpackHigh<8>(a, b);
    SwapNibbles(even, odd);
    uint8_t* low = rows + i * row_bytes;
    uint8_t* high = rows + (i + kLanePairs) * row_bytes;
    StoreTwoLanes(low, high, even);
    StoreTwoLanes(low + kPairsApart * row_bytes, high + kPairsApart * row_bytes, odd);
  }
}

void RowsToPairBlock(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  Sums upper = {Bytes(0), Bytes(0)};
  Sums lower = {Bytes(0), Bytes(0)};
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

// Where the next run begins: one that would stick out at the end is moved back over its neighbour,
// and writes some blocks twice.
size_t PairsRunStart(size_t next, size_t blocks, size_t run) {
  return next < blocks - run ? next : blocks - run;
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
  for (size_t next = 0; next < blocks; next += run) {
    const size_t block = PairsRunStart(next, blocks, run);
    CopyRuns<kPairsRunBytes>(rows + block * cols / 2, row_bytes, kPairRows, tile, kPairsRunBytes);
    RowsToBlocks(tile, kPairsRunBytes, cols, run, pairs + block * PairBlockBytes(cols));
  }
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  if (cols % kTileCols != 0) {
    return Below().pairs_to_rows(pairs, cols, blocks, row_bytes, rows);
  }
  if (!ByRuns(row_bytes, cols, blocks)) return BlocksToRows(pairs, cols, blocks, row_bytes, rows);
  alignas(kLineBytes) uint8_t tile[kPairRows * kPairsRunBytes];
  const size_t run = kPairsRunCols / cols;
  for (size_t next = 0; next < blocks; next += run) {
    const size_t block = PairsRunStart(next, blocks, run);
    BlocksToRows(pairs + block * PairBlockBytes(cols), cols, run, kPairsRunBytes, tile);
    CopyRuns<kPairsRunBytes>(tile, kPairsRunBytes, kPairRows, rows + block * cols / 2, row_bytes);
  }
}

#endif

#endif

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_NIBBLE_PAIRS_BODY_H_
