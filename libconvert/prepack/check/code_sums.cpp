#include "prepack/check/code_sums.h"

#include <array>
#include <cmath>

#include "prepack/model/dequantized_linear.h"

namespace prepack {
namespace {

// For each byte of two nibbles: the lower code, the upper code in bits 16 and up, and the sum
// of their squares in bits 32 and up.
constexpr std::array<uint64_t, 256> MakeNibbleSums() {
  std::array<uint64_t, 256> sums{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    const uint64_t low = byte & 15U;
    const uint64_t high = byte >> 4;
    sums[byte] = low | high << 16 | (low * low + high * high) << 32;
  }
  return sums;
}

constexpr std::array<uint64_t, 256> kNibbleSums = MakeNibbleSums();
static_assert(kPieceCodes / 2 * 15 < 1U << 16);

// Values of FP8 are multiples of 2^-9, and those of FP4 of 2^-1: sums of integers are exact, and no
// addition waits for the one before it.
constexpr double kFp8Units = 0x1p9;
constexpr double kFp4Units = 0x1p1;

// Of an FP8 code: its exponent, the square of that, its sign, and whether it is zero, each in bits
// of its own where a piece of codes has room; and its value.
struct Fp8Code {
  uint64_t counts = 0;
  int64_t value = 0;
};
constexpr unsigned kExponentSquare = 16;
constexpr unsigned kNegative = 40;
constexpr unsigned kZero = 52;
static_assert(kPieceCodes * 15 < 1U << 16 && kPieceCodes * 225 < 1U << 24 &&
              kPieceCodes < 1U << 12);

const std::array<Fp8Code, 256>& Fp8Codes() {
  static const std::array<Fp8Code, 256> kCodes = [] {
    std::array<Fp8Code, 256> codes;
    for (uint64_t code = 0; code < codes.size(); ++code) {
      const uint64_t exponent = code >> 3 & 15U;
      const uint64_t is_zero = (code & 0x7FU) == 0 ? 1 : 0;
      codes[code].counts = exponent | exponent * exponent << kExponentSquare |
                           (code >> 7) << kNegative | is_zero << kZero;
      const double value = CodeValues(CodeType::kF8E4M3)[code];
      codes[code].value = std::isnan(value) ? 0 : static_cast<int64_t>(value * kFp8Units);
    }
    return codes;
  }();
  return kCodes;
}

// The same of a byte of two FP4 codes: signs, zeros, squares, and in the highest bits the values.
constexpr unsigned kFp4Zero = 12;
constexpr unsigned kFp4Squares = 24;
constexpr unsigned kFp4Values = 44;
static_assert(kPieceCodes * 144 < 1U << (kFp4Values - kFp4Squares));

int64_t Fp4Sums(unsigned code) {
  const double value = CodeValues(CodeType::kF4E2M1)[code];
  const auto units = static_cast<int64_t>(value * kFp4Units);
  const int64_t is_zero = (code & 7U) == 0 ? 1 : 0;
  return int64_t{code >> 3} + (is_zero << kFp4Zero) + (units * units << kFp4Squares) +
         units * (int64_t{1} << kFp4Values);
}

const std::array<int64_t, 256>& Fp4Bytes() {
  static const std::array<int64_t, 256> kBytes = [] {
    std::array<int64_t, 256> bytes{};
    for (unsigned byte = 0; byte < bytes.size(); ++byte) {
      bytes[byte] = Fp4Sums(byte & 15U) + Fp4Sums(byte >> 4);
    }
    return bytes;
  }();
  return kBytes;
}

// Calls add(i, table) for every i of [begin, end).
template <typename Add>
void CountInTurns(uint64_t begin, uint64_t end, ByteTables& tables, const Add& add) {
  uint64_t i = begin;
  for (; i + 2 <= end; i += 2) {
    add(i, tables[0]);
    add(i + 1, tables[1]);
  }
  if (i < end) add(i, tables[0]);
}

}  // namespace

PieceSums SumNibbles(const std::byte* row, uint64_t first, uint64_t end, ByteTables& bytes,
                     CodeTable& codes) {
  PieceSums sums{.count = end - first};
  const auto add_single = [&](unsigned code, uint64_t& sum) {
    ++codes[code];
    sum += code;
    sums.squares += uint64_t{code} * code;
  };
  if (first % 2 != 0) add_single(std::to_integer<unsigned>(row[first / 2]) >> 4, sums.odd);
  uint64_t packed = 0;
  CountInTurns((first + 1) / 2, end / 2, bytes, [&](uint64_t at, CodeTable& table) {
    const auto byte = std::to_integer<uint8_t>(row[at]);
    ++table[byte];
    packed += kNibbleSums[byte];
  });
  sums.even += packed & 0xFFFFU;
  sums.odd += packed >> 16 & 0xFFFFU;
  sums.squares += packed >> 32;
  if (end % 2 != 0 && end > first) {
    add_single(std::to_integer<unsigned>(row[end / 2]) & 15U, sums.even);
  }
  return sums;
}

PieceSums SumBytes(std::span<const std::byte> row, unsigned flip, CodeTable& codes) {
  uint64_t sum = 0;
  uint64_t squares = 0;
  for (const std::byte byte : row) {
    const auto code = std::to_integer<uint8_t>(byte);
    ++codes[code];
    const uint64_t value = code ^ flip;
    sum += value;
    squares += value * value;
  }
  return {.count = row.size(), .even = sum, .squares = squares};
}

PieceSums SumFloats(std::span<const std::byte> row, ByteTables& tables, double& sum,
                    double& value_squares) {
  const std::array<Fp8Code, 256>& codes = Fp8Codes();
  uint64_t counts = 0;
  int64_t values = 0;
  int64_t squares = 0;
  CountInTurns(0, row.size(), tables, [&](uint64_t at, CodeTable& table) {
    const auto code = std::to_integer<uint8_t>(row[at]);
    ++table[code];
    counts += codes[code].counts;
    values += codes[code].value;
    squares += codes[code].value * codes[code].value;
  });
  sum += static_cast<double>(values) / kFp8Units;
  value_squares += static_cast<double>(squares) / (kFp8Units * kFp8Units);
  return {.count = row.size(),
          .even = counts & 0xFFFFU,
          .squares = counts >> kExponentSquare & 0xFFFFFFU,
          .negative = counts >> kNegative & 0xFFFU,
          .zero = counts >> kZero};
}

PieceSums SumFloatNibbles(const std::byte* row, uint64_t first, uint64_t end, ByteTables& tables,
                          CodeTable& codes, double& sum, double& value_squares) {
  const std::array<int64_t, 256>& bytes = Fp4Bytes();
  int64_t packed = 0;
  CountInTurns(first / 2, end / 2, tables, [&](uint64_t at, CodeTable& table) {
    const auto byte = std::to_integer<uint8_t>(row[at]);
    ++table[byte];
    packed += bytes[byte];
  });
  if (end % 2 != 0) {
    const unsigned code = std::to_integer<unsigned>(row[end / 2]) & 15U;
    ++codes[code];
    packed += Fp4Sums(code);
  }
  const auto fields = static_cast<uint64_t>(packed);
  sum += static_cast<double>(packed >> kFp4Values) / kFp4Units;
  value_squares += static_cast<double>(fields >> kFp4Squares & 0xFFFFFU) / (kFp4Units * kFp4Units);
  return {.count = end - first, .negative = fields & 0xFFFU, .zero = fields >> kFp4Zero & 0xFFFU};
}

}  // namespace prepack
