#ifndef PREPACK_CHECK_CODE_SUMS_H_
#define PREPACK_CHECK_CODE_SUMS_H_

// Counts and sums of the codes of a group, at most kPieceCodes at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/check/code_windows.h"

namespace prepack {

// How often each code, or each byte, was there.
using CodeTable = std::array<uint64_t, 256>;
// Bytes are counted in turns, so that equal neighbours do not wait for each other.
using ByteTables = std::array<CodeTable, 2>;

// Codes [first, end) of a row of nibbles. Whole bytes are counted in `bytes`, single nibbles in
// `codes`.
PieceSums SumNibbles(const std::byte* row, uint64_t first, uint64_t end, ByteTables& bytes,
                     CodeTable& codes);
// The numbers are code ^ flip.
PieceSums SumBytes(std::span<const std::byte> row, unsigned flip, CodeTable& codes);
// FP8: exponents as PieceSums has them; the values go into `sum` and `value_squares`.
PieceSums SumFloats(std::span<const std::byte> row, ByteTables& codes, double& sum,
                    double& value_squares);
// FP4, codes [first, end) of a row; `first` is even. Signs and zeros as PieceSums has them; the
// values go into `sum` and `value_squares`.
PieceSums SumFloatNibbles(const std::byte* row, uint64_t first, uint64_t end, ByteTables& bytes,
                          CodeTable& codes, double& sum, double& value_squares);

}  // namespace prepack

#endif  // PREPACK_CHECK_CODE_SUMS_H_
