// Counts and sums of codes are those of one code after the other.

#include "prepack/check/code_sums.h"

#include <cmath>
#include <utility>
#include <vector>

#include "catch.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"

namespace prepack {
namespace {

std::vector<std::byte> SomeBytes(uint64_t count, bool fp8) {
  SplitMix64 random(count);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random.Next() % 256);
    if (fp8 && (byte & std::byte{0x7F}) == std::byte{0x7F}) byte = std::byte{0x7E};  // no NaN
  }
  return bytes;
}

uint64_t Total(const ByteTables& tables, unsigned byte) {
  return tables[0][byte] + tables[1][byte];
}

}  // namespace

TEST_CASE("sums of FP8 codes are exact, and every code is counted") {
  for (const uint64_t count : {0U, 1U, 2U, 127U, 128U, 2047U, 2048U}) {
    CAPTURE(count);
    const std::vector<std::byte> row = SomeBytes(count, /*fp8=*/true);
    ByteTables tables{};
    double sum = 1;
    double squares = 2;
    const PieceSums sums = SumFloats(row, tables, sum, squares);
    PieceSums expected{.count = count};
    double expected_sum = 1;
    double expected_squares = 2;
    CodeTable seen{};
    for (const std::byte byte : row) {
      const auto code = std::to_integer<uint8_t>(byte);
      const auto value = static_cast<double>(F8E4M3ToF32(code));
      expected_sum += value;
      expected_squares += value * value;
      expected.even += code >> 3 & 15U;
      expected.squares += (code >> 3 & 15U) * (code >> 3 & 15U);
      expected.negative += std::signbit(value) ? 1 : 0;
      expected.zero += value == 0 ? 1 : 0;
      ++seen[code];
    }
    CHECK(sum == expected_sum);
    CHECK(squares == expected_squares);
    CHECK(sums.count == count);
    CHECK(sums.even == expected.even);
    CHECK(sums.squares == expected.squares);
    CHECK(sums.negative == expected.negative);
    CHECK(sums.zero == expected.zero);
    for (unsigned code = 0; code < 256; ++code) CHECK(Total(tables, code) == seen[code]);
  }
  // Of the largest codes all sums have room.
  for (const unsigned code : {0x7EU, 0xFEU, 0x80U}) {
    const std::vector<std::byte> row(kPieceCodes, static_cast<std::byte>(code));
    const auto value = static_cast<double>(F8E4M3ToF32(static_cast<uint8_t>(code)));
    ByteTables tables{};
    double sum = 0;
    double squares = 0;
    const PieceSums sums = SumFloats(row, tables, sum, squares);
    CHECK(sum == kPieceCodes * value);
    CHECK(squares == kPieceCodes * value * value);
    CHECK(sums.even == kPieceCodes * (code >> 3 & 15U));
    CHECK(sums.squares == kPieceCodes * (code >> 3 & 15U) * (code >> 3 & 15U));
    CHECK(sums.negative == (code >> 7) * kPieceCodes);
    CHECK(sums.zero == (code == 0x80U ? kPieceCodes : 0));
  }
}

TEST_CASE("sums of FP4 codes are exact, from any even code to any other") {
  const std::vector<std::byte> row = SomeBytes(kPieceCodes / 2 + 8, /*fp8=*/false);
  for (const auto& [first, end] : {std::pair<uint64_t, uint64_t>{0, 0},
                                   {0, 1},
                                   {2, 3},
                                   {0, 2},
                                   {4, 36},
                                   {6, 39},
                                   {0, kPieceCodes},
                                   {16, kPieceCodes + 7}}) {
    CAPTURE(first, end);
    ByteTables bytes{};
    CodeTable codes{};
    double sum = 0;
    double squares = 0;
    const PieceSums sums = SumFloatNibbles(row.data(), first, end, bytes, codes, sum, squares);
    double expected_sum = 0;
    double expected_squares = 0;
    uint64_t negative = 0;
    uint64_t zero = 0;
    CodeTable seen{};
    for (uint64_t i = first; i < end; ++i) {
      const unsigned code = std::to_integer<unsigned>(row[i / 2]) >> (i % 2 * 4) & 15U;
      const auto value = static_cast<double>(F4E2M1ToF32(static_cast<uint8_t>(code)));
      expected_sum += value;
      expected_squares += value * value;
      negative += std::signbit(value) ? 1 : 0;
      zero += value == 0 ? 1 : 0;
      ++seen[code];
    }
    CHECK(sums.count == end - first);
    CHECK(sum == expected_sum);
    CHECK(squares == expected_squares);
    CHECK(sums.negative == negative);
    CHECK(sums.zero == zero);
    for (unsigned byte = 0; byte < 256; ++byte) {
      codes[byte & 15U] += Total(bytes, byte);
      codes[byte >> 4] += Total(bytes, byte);
    }
    CHECK(codes == seen);
  }
  for (const unsigned byte : {0x77U, 0xFFU}) {  // 6 and −6, the largest
    const std::vector<std::byte> all(kPieceCodes / 2, static_cast<std::byte>(byte));
    ByteTables bytes{};
    CodeTable codes{};
    double sum = 0;
    double squares = 0;
    SumFloatNibbles(all.data(), 0, kPieceCodes, bytes, codes, sum, squares);
    CHECK(std::abs(sum) == 6.0 * kPieceCodes);
    CHECK(squares == 36.0 * kPieceCodes);
  }
}

}  // namespace prepack
