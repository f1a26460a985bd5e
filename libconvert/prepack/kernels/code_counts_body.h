#ifndef PREPACK_KERNELS_CODE_COUNTS_BODY_H_
#define PREPACK_KERNELS_CODE_COUNTS_BODY_H_

// The bodies of code_counts.h. Nibbles look up in a register what they add to sums, and to the
// bytes that count them.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

void SumNibbles(const uint8_t* bytes, size_t eights, const NibbleValues& values, uint64_t* sums,
                uint64_t* counts) {
  for (size_t i = 0; i < eights; ++i) {
    uint64_t sum = 0;
    for (size_t j = 0; j < kNibbleSumBytes; ++j) {
      const unsigned low = bytes[i * kNibbleSumBytes + j] & 15U;
      const unsigned high = bytes[i * kNibbleSumBytes + j] >> 4;
      sum += uint64_t{values.low[low]} | uint64_t{values.high[high]} << 16;
      sum += (uint64_t{values.both[low]} + values.both[high]) << 32;
      if (counts == nullptr) continue;
      ++counts[low];
      ++counts[high];
    }
    sums[i] = sum;
  }
}

void AddNibbleColumns(const uint8_t* rows, size_t stride, size_t row_count, size_t bytes,
                      const uint8_t* squares, const NibbleColumnSums& sums) {
  for (size_t row = 0; row < row_count; ++row, rows += stride) {
    for (size_t i = 0; i < bytes; ++i) {
      const size_t q = i % 2 * 2;
      const unsigned low = rows[i] & 15U;
      const unsigned high = rows[i] >> 4;
      const auto add = [&](uint16_t& sum, unsigned value) {
        sum = static_cast<uint16_t>(sum + value);
      };
      add(sums.codes[q][i / 2], low);
      add(sums.codes[q + 1][i / 2], high);
      add(sums.squares[q][i / 2], squares[low]);
      add(sums.squares[q + 1][i / 2], squares[high]);
    }
  }
}

#else

namespace {

struct Nibbles {
  Vector low;
  Vector high;

  explicit Nibbles(const uint8_t* bytes)
      : low(And(Load(bytes), Bytes(0x0F))), high(And(ShiftRight<4>(Load(bytes)), Bytes(0x0F))) {}
};

// Each byte counts two codes, one in each half, for as long as these hold.
constexpr size_t kCodePairs = kNibbleCodes / 2;
constexpr size_t kVectorsCounted = 7;  // of two codes in each byte

struct NibbleCounter {
  Vector ones[kCodePairs];    // by code: what it adds to the bytes of a pair
  Vector counts[kCodePairs];  // since they were added to the totals
  Vector totals[kCodePairs];  // of eight bytes each: those of one code, of the other << 32
  size_t room = kVectorsCounted;

  NibbleCounter() {
    for (size_t pair = 0; pair < kCodePairs; ++pair) {
      uint8_t table[kLaneBytes] = {};
      table[pair] = 1;
      table[pair + kCodePairs] = 16;
      ones[pair] = Repeat(LoadLane(table));
      counts[pair] = totals[pair] = Bytes(0);
    }
  }

  [[gnu::always_inline]] void Count(const Nibbles& nibbles) {
#pragma GCC unroll 8
    for (size_t pair = 0; pair < kCodePairs; ++pair) {
      const Vector found =
          Add8(ShuffleBytes(ones[pair], nibbles.low), ShuffleBytes(ones[pair], nibbles.high));
      counts[pair] = Add8(counts[pair], found);
    }
    if (--room == 0) AddToTotals();
  }

  [[gnu::always_inline]] void AddToTotals() {
#pragma GCC unroll 8
    for (size_t pair = 0; pair < kCodePairs; ++pair) {
      const Vector first = AddEights(And(counts[pair], Bytes(0x0F)));
      const Vector second = AddEights(And(ShiftRight<4>(counts[pair]), Bytes(0x0F)));
      totals[pair] = Add64(totals[pair], Add64(first, ShiftLeft64<32>(second)));
      counts[pair] = Bytes(0);
    }
    room = kVectorsCounted;
  }

  void Finish(uint64_t* by_code) {
    AddToTotals();
    for (size_t pair = 0; pair < kCodePairs; ++pair) {
      uint64_t eights[kVectorBytes / 8];
      Store(eights, totals[pair]);
      for (const uint64_t eight : eights) {
        by_code[pair] += eight & 0xFFFFFFFF;
        by_code[pair + kCodePairs] += eight >> 32;
      }
    }
  }
};

// In registers.
struct NibbleTables {
  Vector low, high, both;

  explicit NibbleTables(const NibbleValues& values)
      : low(Repeat(LoadLane(values.low))),
        high(Repeat(LoadLane(values.high))),
        both(Repeat(LoadLane(values.both))) {}

  [[gnu::always_inline]] Vector SumEights(const Nibbles& nibbles) const {
    const Vector sum_low = AddEights(ShuffleBytes(low, nibbles.low));
    const Vector sum_high = AddEights(ShuffleBytes(high, nibbles.high));
    const Vector sum_both = Add64(AddEights(ShuffleBytes(both, nibbles.low)),
                                  AddEights(ShuffleBytes(both, nibbles.high)));
    return Add64(Add64(sum_low, ShiftLeft64<16>(sum_high)), ShiftLeft64<32>(sum_both));
  }
};

}  // namespace

void SumNibbles(const uint8_t* bytes, size_t eights, const NibbleValues& values, uint64_t* sums,
                uint64_t* counts) {
  constexpr size_t kEights = kVectorBytes / kNibbleSumBytes;
  const NibbleTables tables(values);
  size_t i = 0;
  if (counts == nullptr) {
    for (; i + kEights <= eights; i += kEights) {
      Store(sums + i, tables.SumEights(Nibbles(bytes + i * kNibbleSumBytes)));
    }
  } else {
    NibbleCounter counter;
    for (; i + kEights <= eights; i += kEights) {
      const Nibbles nibbles(bytes + i * kNibbleSumBytes);
      Store(sums + i, tables.SumEights(nibbles));
      counter.Count(nibbles);
    }
    counter.Finish(counts);
  }
  if (i == eights) return;
  Below().sum_nibbles(bytes + i * kNibbleSumBytes, eights - i, values, sums + i, counts);
}

namespace {

// Rows whose codes add up to at most 255, and rows whose squares do.
constexpr size_t kRowsOfCodes = 15;
constexpr size_t kRowsOfSquares = 3;

// Adds numbers of a byte to sums of two: those at even places, and those at odd ones.
[[gnu::always_inline]] inline void AddBytes(Vector bytes, Vector& even, Vector& odd) {
  even = Add16(even, And(bytes, Numbers(0x00FF)));
  odd = Add16(odd, ShiftRight<8>(bytes));
}

[[gnu::always_inline]] inline void AddTo(uint16_t* sums, Vector numbers) {
  Store(sums, Add16(Load(sums), numbers));
}

// Of a few rows, in the columns that a register has room for, from byte 2 · `pair` on.
[[gnu::always_inline]] inline void AddColumns(const uint8_t* rows, size_t stride, size_t row_count,
                                              Vector table, size_t pair,
                                              const NibbleColumnSums& sums) {
  Vector low = Bytes(0);
  Vector high = Bytes(0);
  Vector squares[4] = {Bytes(0), Bytes(0), Bytes(0), Bytes(0)};
  for (size_t row = 0; row < row_count;) {
    Vector low_squares = Bytes(0);
    Vector high_squares = Bytes(0);
    const size_t end = row + kRowsOfSquares < row_count ? row + kRowsOfSquares : row_count;
    for (; row < end; ++row, rows += stride) {
      const Nibbles nibbles(rows);
      low = Add8(low, nibbles.low);
      high = Add8(high, nibbles.high);
      low_squares = Add8(low_squares, ShuffleBytes(table, nibbles.low));
      high_squares = Add8(high_squares, ShuffleBytes(table, nibbles.high));
    }
    AddBytes(low_squares, squares[0], squares[2]);
    AddBytes(high_squares, squares[1], squares[3]);
  }
  Vector codes[4] = {Bytes(0), Bytes(0), Bytes(0), Bytes(0)};
  AddBytes(low, codes[0], codes[2]);
  AddBytes(high, codes[1], codes[3]);
#pragma GCC unroll 4
  for (size_t q = 0; q < 4; ++q) {
    AddTo(sums.codes[q] + pair, codes[q]);
    AddTo(sums.squares[q] + pair, squares[q]);
  }
}

}  // namespace

void AddNibbleColumns(const uint8_t* rows, size_t stride, size_t row_count, size_t bytes,
                      const uint8_t* squares, const NibbleColumnSums& sums) {
  const Vector table = Repeat(LoadLane(squares));
  const size_t whole = bytes / kVectorBytes * kVectorBytes;
  for (size_t row = 0; row < row_count; row += kRowsOfCodes) {
    const size_t count = row + kRowsOfCodes < row_count ? kRowsOfCodes : row_count - row;
    for (size_t i = 0; i < whole; i += kVectorBytes) {
      AddColumns(rows + row * stride + i, stride, count, table, i / 2, sums);
    }
  }
  if (whole == bytes) return;
  NibbleColumnSums rest = sums;
  for (size_t q = 0; q < 4; ++q) {
    rest.codes[q] += whole / 2;
    rest.squares[q] += whole / 2;
  }
  Below().add_nibble_columns(rows + whole, stride, row_count, bytes - whole, squares, rest);
}

#endif

// Compilers make vectors of these loops.

ByteSums SumByteCodes(const uint8_t* codes, size_t count, uint8_t flip) {
  uint32_t sum = 0;
  uint32_t squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t code = static_cast<uint8_t>(codes[i] ^ flip);
    sum += code;
    squares += code * code;
  }
  return {.codes = sum, .squares = squares};
}

Fp8Sums SumFp8Codes(const uint8_t* codes, size_t count) {
  uint64_t value_squares = 0;
  int32_t values = 0;
  uint32_t exponents = 0;
  uint32_t exponent_squares = 0;
  uint32_t negative = 0;
  uint32_t zero = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t code = codes[i];
    const uint32_t size = code & 0x7FU;
    const uint32_t exponent = size >> 3;
    exponents += exponent;
    exponent_squares += exponent * exponent;
    negative += code >> 7;
    zero += size == 0 ? 1U : 0U;
    // Numbers below the normal ones lie as near to each other as the least of these.
    const uint32_t normal = exponent == 0 ? 0U : 1U;
    const uint32_t units = ((size & 7U) | normal << 3) << (exponent - normal);
    const auto value = static_cast<int32_t>(size == 0x7FU ? 0U : units);
    values += code > 0x7FU ? -value : value;
    value_squares += static_cast<uint64_t>(int64_t{value} * value);
  }
  return {.value_squares = value_squares,
          .values = values,
          .exponents = exponents,
          .exponent_squares = exponent_squares,
          .negative = negative,
          .zero = zero};
}

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_CODE_COUNTS_BODY_H_
