#pragma once

// Counts and sums of codes, by which `check` judges whether they are those of weights
// (check/code_windows.h).

#include <cstddef>
#include <cstdint>

namespace prepack {

inline constexpr size_t kNibbleCodes = 16;
// Sums of nibbles are made for so many bytes at a time.
inline constexpr size_t kNibbleSumBytes = 8;

// What the nibbles of a byte add to its sums.
struct NibbleValues {
  uint8_t low[kNibbleCodes];
  uint8_t high[kNibbleCodes];
  uint8_t both[kNibbleCodes];  // of either place
};

// Of the nibbles of bytes [8 · i, 8 · i + 8), in sums[i]: Σ low, Σ high << 16, and Σ both << 32.
// With values of up to 15, and of up to 2^16 in `both`, such numbers can be added up for 4096
// bytes. How often each code occurs is added to counts[code], unless that is null. `eights`: how
// many times eight bytes.
using SumNibblesFn = void(const uint8_t* bytes, size_t eights, const NibbleValues& values,
                          uint64_t* sums, uint64_t* counts);

// Sums by column: [q][j] is that of code 4·j + q of a row.
struct NibbleColumnSums {
  uint16_t* codes[4];
  uint16_t* squares[4];
};

// Adds the nibbles of rows of `bytes`, an even number, which lie `stride` apart: the codes, and
// what `squares`, at most 85 each, has for them.
using AddNibbleColumnsFn = void(const uint8_t* rows, size_t stride, size_t row_count, size_t bytes,
                                const uint8_t* squares, const NibbleColumnSums& sums);

struct ByteSums {
  uint32_t codes = 0;
  uint32_t squares = 0;
};

// At once, so that sums fit.
inline constexpr size_t kMostSummedCodes = size_t{1} << 13;

// Of codes ^ flip.
using SumByteCodesFn = ByteSums(const uint8_t* codes, size_t count, uint8_t flip);

// Of FP8 (E4M3). Values are multiples of 2^-9, in units of that, so all sums are exact; that of NaN
// is 0.
struct Fp8Sums {
  uint64_t value_squares = 0;
  int64_t values = 0;
  uint32_t exponents = 0;
  uint32_t exponent_squares = 0;
  uint32_t negative = 0;  // codes whose sign is set
  uint32_t zero = 0;      // codes
};

using SumFp8CodesFn = Fp8Sums(const uint8_t* codes, size_t count);

}  // namespace prepack
