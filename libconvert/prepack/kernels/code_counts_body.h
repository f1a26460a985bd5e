#pragma once

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

#ifdef PREPACK_SCALAR

Fp8Sums SumFp8Codes(const uint8_t* codes, size_t count) {
  Fp8Sums sums;
  for (size_t i = 0; i < count; ++i) {
    const unsigned size = codes[i] & 0x7FU;
    const unsigned exponent = size >> 3;
    sums.exponents += exponent;
    sums.exponent_squares += exponent * exponent;
    sums.negative += codes[i] >> 7;
    sums.zero += size == 0 ? 1U : 0U;
    // Numbers below the normal ones lie as near to each other as the least of these.
    const unsigned normal = exponent == 0 ? 0U : 1U;
    const int64_t value = size == 0x7F ? 0 : ((size & 7U) | normal << 3) << (exponent - normal);
    sums.values += codes[i] > 0x7FU ? -value : value;
    sums.value_squares += static_cast<uint64_t>(value * value);
  }
  return sums;
}

#else

namespace {

// Values of FP8 as sums of two numbers of which one is zero: low + 128 · high. Both have 11 bits.
constexpr unsigned kHighBits = 7;

[[gnu::always_inline]] inline void AddPairs(Vector a, Vector b, Vector& sum) {
  sum = Add32(sum, MultiplyPairs(a, b));
}

struct Fp8Tables {
  Vector implicit;  // by exponent: the bit above the mantissa
  Vector low;       // what the mantissa is multiplied with
  Vector high;
  Vector squares;  // of exponents

  Fp8Tables() {
    uint8_t bits[kLaneBytes] = {};
    uint8_t lows[kLaneBytes] = {1};
    uint8_t highs[kLaneBytes] = {};
    uint8_t squared[kLaneBytes] = {};
    for (unsigned exponent = 1; exponent < kLaneBytes; ++exponent) {
      bits[exponent] = 8;
      squared[exponent] = static_cast<uint8_t>(exponent * exponent);
      const unsigned shift = exponent - 1;
      if (shift <= kHighBits) {
        lows[exponent] = static_cast<uint8_t>(1U << shift);
      } else {
        highs[exponent] = static_cast<uint8_t>(1U << (shift - kHighBits));
      }
    }
    implicit = Repeat(LoadLane(bits));
    low = Repeat(LoadLane(lows));
    high = Repeat(LoadLane(highs));
    squares = Repeat(LoadLane(squared));
  }
};

struct Fp8Counter {
  Vector exponents;  // of eight bytes: Σ exponent, Σ exponent² << 32
  Vector signs;      // the same: negative ones, zeros << 32
  Vector low;
  Vector high;
  Vector low_squares;
  Vector high_squares;

  Fp8Counter() { exponents = signs = low = high = low_squares = high_squares = Bytes(0); }

  [[gnu::always_inline]] void Add(const Fp8Tables& tables, Vector codes) {
    const Vector ones = Bytes(1);
    const Vector sizes = And(codes, Bytes(0x7F));
    const Vector exponent = And(ShiftRight<3>(codes), Bytes(0x0F));
    const Vector negative = And(ShiftRight<7>(codes), ones);
    const Vector zeros = Sub8(ones, LesserSigned8(sizes, ones));
    exponents = Add64(exponents, AddEights(exponent));
    exponents =
        Add64(exponents, ShiftLeft64<32>(AddEights(ShuffleBytes(tables.squares, exponent))));
    signs = Add64(signs, Add64(AddEights(negative), ShiftLeft64<32>(AddEights(zeros))));
    // Zero for NaN, whose size is the only one above 0x7E.
    const Vector is_number = Sub8(LesserSigned8(sizes, Bytes(0x7E)), Sub8(sizes, ones));
    const Vector mantissas = Add8(And(codes, Bytes(7)), ShuffleBytes(tables.implicit, exponent));
    const Vector lows = ShuffleBytes(tables.low, exponent);
    const Vector highs = ShuffleBytes(tables.high, exponent);
    const Vector in_even = Numbers(0x00FF);
    AddValues(And(mantissas, in_even), And(lows, in_even), And(highs, in_even),
              And(negative, in_even), And(is_number, in_even));
    AddValues(ShiftRight<8>(mantissas), ShiftRight<8>(lows), ShiftRight<8>(highs),
              ShiftRight<8>(negative), ShiftRight<8>(is_number));
  }

  // Of numbers of 16 bits.
  [[gnu::always_inline]] void AddValues(Vector mantissas, Vector lows, Vector highs,
                                        Vector negative, Vector is_number) {
    const Vector of_low = Multiply16(mantissas, lows);
    const Vector of_high = Multiply16(Multiply16(mantissas, highs), is_number);
    const Vector signs_of = Sub16(Numbers(1), Add16(negative, negative));
    AddPairs(of_low, signs_of, low);
    AddPairs(of_high, signs_of, high);
    AddPairs(of_low, of_low, low_squares);
    AddPairs(of_high, of_high, high_squares);
  }

  Fp8Sums Sums() const {
    // Both halves of 64 bits, in these.
    const auto widen = [](Vector squares) {
      return Add64(ShiftRight64<32>(ShiftLeft64<32>(squares)), ShiftRight64<32>(squares));
    };
    const Vector squares =
        Add64(widen(low_squares), ShiftLeft64<2 * kHighBits>(widen(high_squares)));
    const uint64_t by_exponent = TotalOfEights(exponents);
    const uint64_t by_sign = TotalOfEights(signs);
    return {.value_squares = TotalOfEights(squares),
            .values = Total(Add32(low, ShiftLeft32<kHighBits>(high))),
            .exponents = static_cast<uint32_t>(by_exponent),
            .exponent_squares = static_cast<uint32_t>(by_exponent >> 32),
            .negative = static_cast<uint32_t>(by_sign),
            .zero = static_cast<uint32_t>(by_sign >> 32)};
  }

  [[gnu::always_inline]] static uint64_t TotalOfEights(Vector numbers) {
    uint64_t eights[kVectorBytes / 8];
    Store(eights, numbers);
    uint64_t total = 0;
    for (const uint64_t eight : eights) total += eight;
    return total;
  }
};

}  // namespace

Fp8Sums SumFp8Codes(const uint8_t* codes, size_t count) {
  const Fp8Tables tables;
  Fp8Counter counter;
  size_t i = 0;
  for (; i + kVectorBytes <= count; i += kVectorBytes) counter.Add(tables, Load(codes + i));
  Fp8Sums sums = counter.Sums();
  if (i == count) return sums;
  const Fp8Sums rest = Below().sum_fp8_codes(codes + i, count - i);
  sums.value_squares += rest.value_squares;
  sums.values += rest.values;
  sums.exponents += rest.exponents;
  sums.exponent_squares += rest.exponent_squares;
  sums.negative += rest.negative;
  sums.zero += rest.zero;
  return sums;
}

#endif

// Compilers make vectors of this loop.
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

}  // namespace prepack::PREPACK_LEVEL
