#include "prepack/measure/code_sums.h"

#include <algorithm>

#include "prepack/base/checked.h"
#include "prepack/kernels/kernels.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

using Kind = CodeRange::Kind;

// Codes in the bytes that a kernel sums up at once.
constexpr uint64_t kEight = 2 * kNibbleSumBytes;

// Of a nibble that is an integer: itself, and its square.
constexpr NibbleValues MakeIntegers() {
  NibbleValues values{};
  for (uint8_t code = 0; code < kNibbleCodes; ++code) {
    values.low[code] = values.high[code] = code;
    values.both[code] = static_cast<uint8_t>(code * code);
  }
  return values;
}

constexpr NibbleValues kIntegers = MakeIntegers();

// Values of FP8 are multiples of 2^-9, and those of FP4 of 2^-1: sums of integers are exact.
constexpr double kFp8Units = 0x1p9;
constexpr double kFp4Units = 0x1p1;
constexpr int kLargestFp4 = 12;  // units

// Of FP4: the value in units above the least one, and its square.
const NibbleValues& Fp4Values() {
  static const NibbleValues kValues = [] {
    NibbleValues values{};
    for (size_t code = 0; code < kNibbleCodes; ++code) {
      const double value = CodeValues(CodeType::kF4E2M1)[code];
      const auto units = static_cast<int>(value * kFp4Units);
      values.low[code] = values.high[code] = static_cast<uint8_t>(units + kLargestFp4);
      values.both[code] = static_cast<uint8_t>(units * units);
    }
    return values;
  }();
  return kValues;
}

// Whether it is negative, and whether it is zero.
constexpr NibbleValues MakeFp4Signs() {
  NibbleValues values{};
  for (uint8_t code = 0; code < kNibbleCodes; ++code) {
    values.low[code] = values.high[code] = code >> 3;
    values.both[code] = (code & 7U) == 0 ? 1 : 0;
  }
  return values;
}

constexpr NibbleValues kFp4Signs = MakeFp4Signs();

struct NibbleSums {
  uint64_t low = 0;
  uint64_t high = 0;
  uint64_t both = 0;
};

uint8_t NibbleAt(std::span<const std::byte> row, uint64_t i) {
  return PanelCode(CodeType::kU4, row, 0, 0, i);
}

// Of codes [first, end): whole eights are there already.
NibbleSums SumOf(const NibbleValues& values, std::span<const uint64_t> eights,
                 std::span<const std::byte> row, uint64_t first, uint64_t end) {
  uint64_t sum = 0;
  const auto add_single = [&](uint64_t begin, uint64_t stop) {
    for (uint64_t i = begin; i < stop; ++i) {
      const uint8_t code = NibbleAt(row, i);
      sum += i % 2 == 0 ? uint64_t{values.low[code]} : uint64_t{values.high[code]} << 16;
      sum += uint64_t{values.both[code]} << 32;
    }
  };
  const uint64_t begin = std::min(CeilDiv(first, kEight) * kEight, end);
  const uint64_t stop = std::max(begin, end / kEight * kEight);
  add_single(first, begin);
  for (uint64_t i = begin / kEight; i < stop / kEight; ++i) sum += eights[i];
  add_single(stop, end);
  return {.low = sum & 0xFFFFU, .high = sum >> 16 & 0xFFFFU, .both = sum >> 32};
}
static_assert(kPieceCodes / 2 * 2 * kLargestFp4 < 1U << 16);
static_assert(kPieceCodes <= kMostSummedCodes);

// The totals of `count` runs of `each` numbers.
std::span<const uint64_t> TotalsOf(std::span<const uint64_t> numbers, size_t each, size_t count,
                                   std::vector<uint64_t>& totals) {
  if (each == 1) return numbers.first(count);
  totals.resize(count);
  const uint64_t* next = numbers.first(count * each).data();
  for (uint64_t& total : totals) {
    total = 0;
    for (size_t i = 0; i < each; ++i) total += *next++;
  }
  return totals;
}

}  // namespace

void RowCodes::Read(std::span<const std::byte> row, uint64_t k) {
  row_ = row;
  switch (kind_) {
    case Kind::kNibbles:
      return ReadNibbles(k);
    case Kind::kFloatNibbles:
      ReadNibbles(k);
      signs_.resize(sums_.size());
      return Kernels().sum_nibbles(U8(row_.data()), signs_.size(), kFp4Signs, signs_.data(),
                                   nullptr);
    case Kind::kBytes:
    case Kind::kFloats:
      return CountBytes();
  }
}

void RowCodes::ReadNibbles(uint64_t k) {
  sums_.resize(k / kEight);
  const NibbleValues& values = kind_ == Kind::kNibbles ? kIntegers : Fp4Values();
  Kernels().sum_nibbles(U8(row_.data()), sums_.size(), values, sums_.data(), counts_.data());
  for (uint64_t i = sums_.size() * kEight; i < k; ++i) ++counts_[NibbleAt(row_, i)];
}

void RowCodes::CountBytes() {
  auto& [a, b, c, d] = turns_;
  const uint8_t* row = U8(row_.data());
  size_t i = 0;
  for (; i + turns_.size() <= row_.size(); i += turns_.size()) {
    ++a[row[i]];
    ++b[row[i + 1]];
    ++c[row[i + 2]];
    ++d[row[i + 3]];
  }
  for (; i < row_.size(); ++i) ++a[row[i]];
}

PieceSums RowCodes::Sum(uint64_t first, uint64_t end, ValueSums& values) const {
  const uint64_t count = end - first;
  switch (kind_) {
    case Kind::kNibbles: {
      const NibbleSums sums = SumOf(kIntegers, sums_, row_, first, end);
      return {.count = count, .even = sums.low, .odd = sums.high, .squares = sums.both};
    }
    case Kind::kFloatNibbles: {
      const NibbleSums sums = SumOf(Fp4Values(), sums_, row_, first, end);
      const NibbleSums signs = SumOf(kFp4Signs, signs_, row_, first, end);
      values.sum +=
          (static_cast<double>(sums.low + sums.high) - static_cast<double>(kLargestFp4 * count)) /
          kFp4Units;
      values.squares += static_cast<double>(sums.both) / (kFp4Units * kFp4Units);
      return {.count = count, .negative = signs.low + signs.high, .zero = signs.both};
    }
    case Kind::kBytes: {
      const ByteSums sums =
          Kernels().sum_byte_codes(U8(row_.data()) + first, count, static_cast<uint8_t>(flip_));
      return {.count = count, .even = sums.codes, .squares = sums.squares};
    }
    case Kind::kFloats:
      break;
  }
  const Fp8Sums sums = Kernels().sum_fp8_codes(U8(row_.data()) + first, count);
  values.sum += static_cast<double>(sums.values) / kFp8Units;
  values.squares += static_cast<double>(sums.value_squares) / (kFp8Units * kFp8Units);
  return {.count = count,
          .even = sums.exponents,
          .squares = sums.exponent_squares,
          .negative = sums.negative,
          .zero = sums.zero};
}

bool RowCodes::HasGroups(CodeRange::Kind kind, uint64_t size) {
  const bool nibbles = kind == Kind::kNibbles || kind == Kind::kFloatNibbles;
  return nibbles && size % kEight == 0 && kPieceCodes % size == 0;
}

NibbleGroups RowCodes::SumGroups(uint64_t size, std::span<double> sums, std::span<double> squares) {
  const size_t each = size / kEight;
  const std::span<const uint64_t> codes = TotalsOf(sums_, each, sums.size(), group_sums_);
  const bool is_float = kind_ == Kind::kFloatNibbles;
  GroupUnits units;
  if (is_float) units = {kLargestFp4 * static_cast<int32_t>(size), 1 / kFp4Units};
  Kernels().split_group_sums(codes.data(), codes.size(), units, sums.data(), squares.data());
  if (!is_float) return {.size = size, .sums = codes};
  return {.size = size, .sums = TotalsOf(signs_, each, sums.size(), group_signs_)};
}

void RowCodes::CountInto(ByteCounts<uint64_t>& histogram) const {
  for (size_t code = 0; code < counts_.size(); ++code) {
    uint64_t count = counts_[code];
    for (const auto& turn : turns_) count += turn[code];
    if (count != 0) histogram.Add(code, count);
  }
}

}  // namespace prepack
