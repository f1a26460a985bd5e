// Counts and sums of codes are those of one code after the other.

#include "prepack/measure/code_sums.h"

#include <array>
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

// Sums of codes [first, end) that are made one by one. `value_of`: what a code stands for.
template <typename CodeAt, typename ValueOf>
std::pair<PieceSums, ValueSums> SumOneByOne(uint64_t first, uint64_t end, const CodeAt& code_at,
                                            const ValueOf& value_of) {
  PieceSums sums{.count = end - first};
  ValueSums values;
  for (uint64_t i = first; i < end; ++i) {
    const auto value = static_cast<double>(value_of(code_at(i)));
    values.sum += value;
    values.squares += value * value;
    sums.negative += std::signbit(value) ? 1 : 0;
    sums.zero += value == 0 ? 1 : 0;
  }
  return {sums, values};
}

uint8_t NibbleAt(const std::vector<std::byte>& row, uint64_t i) {
  return std::to_integer<unsigned>(row[i / 2]) >> (i % 2 * 4) & 15U;
}

// Of codes that were counted twice.
template <typename CodeAt>
void CheckCounts(const RowCodes& codes, uint64_t k, const CodeAt& code_at) {
  ByteCounts<uint64_t> found;
  codes.CountInto(found);
  std::array<uint64_t, 256> expected{};
  for (uint64_t i = 0; i < k; ++i) expected[code_at(i)] += 2;
  CHECK(found.All() == expected);
}

// Pieces around the eights of bytes that are summed up together.
const std::vector<std::pair<uint64_t, uint64_t>> kPieces = {
    {0, 0},  {0, 1},   {2, 3},   {0, 2},   {4, 36},   {6, 39},          {1, 15},
    {3, 17}, {16, 32}, {15, 33}, {17, 31}, {32, 160}, {0, kPieceCodes}, {16, kPieceCodes + 7}};

constexpr uint64_t kRowCodes = kPieceCodes + 17;

}  // namespace

TEST_CASE("sums of FP8 codes are exact, and every code is counted") {
  const auto value_of = [](uint8_t code) { return F8E4M3ToF32(code); };
  for (const uint64_t count : {0U, 1U, 2U, 127U, 128U, 2047U, 2048U}) {
    CAPTURE(count);
    const std::vector<std::byte> row = SomeBytes(count, /*fp8=*/true);
    const auto code_at = [&](uint64_t i) { return std::to_integer<uint8_t>(row[i]); };
    RowCodes codes(CodeRange::Kind::kFloats, 0);
    codes.Read(row, count);
    codes.Read(row, count);
    ValueSums values{.sum = 1, .squares = 2};
    const PieceSums sums = codes.Sum(0, count, values);
    auto [expected, expected_values] = SumOneByOne(0, count, code_at, value_of);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t exponent = code_at(i) >> 3 & 15U;
      expected.even += exponent;
      expected.squares += exponent * exponent;
    }
    CHECK(values.sum == 1 + expected_values.sum);
    CHECK(values.squares == 2 + expected_values.squares);
    CHECK(sums == expected);
    CheckCounts(codes, count, code_at);
  }
  // Of the largest codes all sums have room. NaN counts for nothing.
  for (const unsigned code : {0x7EU, 0xFEU, 0x80U, 0x7FU, 0xFFU}) {
    const std::vector<std::byte> row(kPieceCodes, static_cast<std::byte>(code));
    const auto read = static_cast<double>(F8E4M3ToF32(static_cast<uint8_t>(code)));
    const double value = std::isnan(read) ? 0 : read;
    RowCodes codes(CodeRange::Kind::kFloats, 0);
    codes.Read(row, kPieceCodes);
    ValueSums values;
    const PieceSums sums = codes.Sum(0, kPieceCodes, values);
    CHECK(values.sum == kPieceCodes * value);
    CHECK(values.squares == kPieceCodes * value * value);
    CHECK(sums.even == kPieceCodes * (code >> 3 & 15U));
    CHECK(sums.squares == kPieceCodes * (code >> 3 & 15U) * (code >> 3 & 15U));
    CHECK(sums.negative == (code >> 7) * kPieceCodes);
    CHECK(sums.zero == (code == 0x80U ? kPieceCodes : 0));
  }
}

TEST_CASE("sums of FP4 codes are exact, from any code to any other") {
  const std::vector<std::byte> row = SomeBytes(kRowCodes / 2 + 1, /*fp8=*/false);
  const auto code_at = [&](uint64_t i) { return NibbleAt(row, i); };
  const auto value_of = [](uint8_t code) { return F4E2M1ToF32(code); };
  RowCodes codes(CodeRange::Kind::kFloatNibbles, 0);
  codes.Read(row, kRowCodes);
  codes.Read(row, kRowCodes);
  CheckCounts(codes, kRowCodes, code_at);
  for (const auto& [first, end] : kPieces) {
    CAPTURE(first, end);
    ValueSums values;
    const PieceSums sums = codes.Sum(first, end, values);
    const auto [expected, expected_values] = SumOneByOne(first, end, code_at, value_of);
    CHECK(values.sum == expected_values.sum);
    CHECK(values.squares == expected_values.squares);
    CHECK(sums == expected);
  }
  for (const unsigned byte : {0x77U, 0xFFU}) {  // 6 and −6, the largest
    const std::vector<std::byte> all(kPieceCodes / 2, static_cast<std::byte>(byte));
    RowCodes largest(CodeRange::Kind::kFloatNibbles, 0);
    largest.Read(all, kPieceCodes);
    ValueSums values;
    CHECK(largest.Sum(0, kPieceCodes, values).negative == (byte >> 7) * kPieceCodes);
    CHECK(std::abs(values.sum) == 6.0 * kPieceCodes);
    CHECK(values.squares == 36.0 * kPieceCodes);
  }
}

TEST_CASE("sums of integers of 4 bits are those of one code after the other") {
  const std::vector<std::byte> row = SomeBytes(kRowCodes / 2 + 1, /*fp8=*/false);
  const auto code_at = [&](uint64_t i) { return NibbleAt(row, i); };
  RowCodes codes(CodeRange::Kind::kNibbles, 0);
  codes.Read(row, kRowCodes);
  codes.Read(row, kRowCodes);
  CheckCounts(codes, kRowCodes, code_at);
  ValueSums values;
  for (const auto& [first, end] : kPieces) {
    CAPTURE(first, end);
    PieceSums expected{.count = end - first};
    for (uint64_t i = first; i < end; ++i) {
      const uint64_t code = code_at(i);
      (i % 2 == 0 ? expected.even : expected.odd) += code;
      expected.squares += code * code;
    }
    CHECK(codes.Sum(first, end, values) == expected);
  }
  const std::vector<std::byte> largest(kPieceCodes / 2, std::byte{0xFF});
  codes.Read(largest, kPieceCodes);
  CHECK(codes.Sum(0, kPieceCodes, values) == PieceSums{.count = kPieceCodes,
                                                       .even = kPieceCodes / 2 * 15,
                                                       .odd = kPieceCodes / 2 * 15,
                                                       .squares = kPieceCodes * 225});
  CHECK(values.sum == 0);
}

TEST_CASE("sums of integers of 8 bits are those of one code after the other") {
  const std::vector<std::byte> row = SomeBytes(kRowCodes, /*fp8=*/false);
  const auto code_at = [&](uint64_t i) { return std::to_integer<uint8_t>(row[i]); };
  for (const unsigned flip : {0U, 0x80U}) {
    RowCodes codes(CodeRange::Kind::kBytes, flip);
    codes.Read(row, kRowCodes);
    codes.Read(row, kRowCodes);
    CheckCounts(codes, kRowCodes, code_at);
    ValueSums values;
    for (const auto& [first, end] : kPieces) {
      CAPTURE(flip, first, end);
      PieceSums expected{.count = end - first};
      for (uint64_t i = first; i < end; ++i) {
        const uint64_t value = code_at(i) ^ flip;
        expected.even += value;
        expected.squares += value * value;
      }
      CHECK(codes.Sum(first, end, values) == expected);
    }
  }
}

}  // namespace prepack
