// Statistics of small windows of codes. Damage by storage or transfer hits pages, not whole
// modules: a few KiB of zeros hardly move the mean of a module, but that of a window.

#include "prepack/measure/code_windows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cmath>
#include <iterator>
#include <string_view>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/kernels/kernels.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

// One row in this many is kept for comparison, chosen by its hash.
constexpr uint64_t kKeptRows = 8;
// Sums of nibbles, and of their squared distances from the middle, stay below 2^16.
static_assert(kColumnBlock * 15 * 15 < 1U << 16);

// Whether all codes stand for zero weights.
bool IsEmpty(const CodeRange& range, const PieceSums& sums, unsigned zero) {
  if (range.IsFloat()) return sums.zero == sums.count;
  return sums.even + sums.odd == sums.count * zero && sums.squares == sums.count * zero * zero;
}

// The same for a group of nibbles. Integers that all are `zero` have these sums, and no others do:
// if `zero` is none of the codes, its square is too large.
bool IsEmptyGroup(const CodeRange& range, uint64_t sums, uint64_t size, uint64_t zero) {
  if (range.IsFloat()) return sums >> 32 == size;
  return sums == zero * (size / 2) * 0x10001 + (size * zero * zero << 32);
}

PieceSums PieceOfNibbles(const CodeRange& range, uint64_t sums, uint64_t count) {
  const uint64_t low = sums & 0xFFFFU;
  const uint64_t high = sums >> 16 & 0xFFFFU;
  if (range.IsFloat()) return {.count = count, .negative = low + high, .zero = sums >> 32};
  return {.count = count, .even = low, .odd = high, .squares = sums >> 32};
}
static_assert((kWindowCodes + kPieceCodes) / 2 * 15 < 1U << 16);

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

// All rows have the same code there.
bool IsConstant(uint64_t sum, uint64_t squares, uint64_t rows, unsigned middle) {
  if (sum % rows != 0) return false;
  const auto off = static_cast<int64_t>(sum / rows) - static_cast<int64_t>(middle);
  return squares == rows * static_cast<uint64_t>(off * off);
}

// How many hashes equal an earlier one. Only those are put in order of which some bits have been
// there before, which are few.
uint64_t CountRepeated(std::span<const uint64_t> hashes) {
  const size_t bits = std::bit_ceil(16 * hashes.size() + 1);
  const auto place = [&](uint64_t hash) { return hash & (bits - 1); };
  std::vector<bool> seen(bits);
  std::vector<bool> twice(bits);
  for (const uint64_t hash : hashes) {
    if (seen[place(hash)]) twice[place(hash)] = true;
    seen[place(hash)] = true;
  }
  std::vector<uint64_t> maybe;
  std::ranges::copy_if(hashes, std::back_inserter(maybe),
                       [&](uint64_t hash) { return twice[place(hash)]; });
  std::ranges::sort(maybe);
  uint64_t repeated = 0;
  for (size_t i = 1; i < maybe.size(); ++i) repeated += maybe[i] == maybe[i - 1] ? 1U : 0U;
  return repeated;
}

}  // namespace

void WindowCounts::Merge(const WindowCounts& other) {
  windows += other.windows;
  shifted_windows += other.shifted_windows;
  noisy_windows += other.noisy_windows;
  column_windows += other.column_windows;
  shifted_columns += other.shifted_columns;
  noisy_columns += other.noisy_columns;
  constant_columns += other.constant_columns;
  repeated_columns += other.repeated_columns;
  empty_scale_exponents.Merge(other.empty_scale_exponents);
  codes_hash += other.codes_hash;
  row_hashes.insert(row_hashes.end(), other.row_hashes.begin(), other.row_hashes.end());
}

uint64_t WindowCounts::RepeatedRows() const {
  return CountRepeated(row_hashes);
}

CodeRange RangeOf(const Scheme& scheme) {
  using enum CodeRange::Kind;
  const unsigned half = 1U << (scheme.bits - 1);
  switch (scheme.code) {
    case CodeType::kS8:
      return {.kind = kBytes, .flip = 0x80, .middle = 0x80, .half = static_cast<double>(half)};
    case CodeType::kU8:
      return {.kind = kBytes, .flip = 0, .middle = half, .half = static_cast<double>(half)};
    case CodeType::kF8E4M3:
      return {.kind = kFloats, .flip = 0, .middle = 0, .half = 1};
    case CodeType::kF4E2M1:
      return {.kind = kFloatNibbles, .flip = 0, .middle = 0, .half = 1};
    default:
      return {.kind = kNibbles, .flip = 0, .middle = half, .half = static_cast<double>(half)};
  }
}

// With absmax scales, no group is all zero, and at 8 bits there is no long run of zeros either.
RowWindows::RowWindows(const Scheme& scheme, WindowCounts& counts)
    : range_(RangeOf(scheme)),
      symmetric_(scheme.symmetric),
      judges_variance_(scheme.group_size >= kMinVarianceGroup),
      empties_tell_(scheme.group_size <= kPieceCodes || scheme.bits == 8),
      counts_(counts) {}

void RowWindows::Add(const PieceSums& sums, float scale, uint8_t zero_point) {
  const unsigned zero = zero_point ^ range_.flip;
  if (IsEmpty(range_, sums, zero)) return AddEmpty(scale);
  total_.Add(sums);
  zeros_ += sums.count * zero;
  if (total_.count >= kWindowCodes) Judge();
}

void RowWindows::AddGroups(const NibbleGroups& groups, const float* scales,
                           const uint8_t* zero_points) {
  // Of groups that are not in the total yet; there is room for so many.
  uint64_t count = 0;
  uint64_t sums = 0;
  uint64_t zeros = 0;
  uint64_t room = CeilDiv(kWindowCodes - total_.count, groups.size);
  const auto add_to_total = [&] {
    total_.Add(PieceOfNibbles(range_, sums, count * groups.size));
    zeros_ += groups.size * zeros;
    count = sums = zeros = 0;
  };
  for (size_t g = 0; g < groups.sums.size(); ++g) {
    if (IsEmptyGroup(range_, groups.sums[g], groups.size, zero_points[g])) {
      AddEmpty(scales[g]);
      continue;
    }
    sums += groups.sums[g];
    zeros += zero_points[g];
    if (++count < room) continue;
    add_to_total();
    Judge();
    room = CeilDiv(kWindowCodes, groups.size);
  }
  add_to_total();
}

void RowWindows::AddEmpty(float scale) {
  const uint32_t bits = std::bit_cast<uint32_t>(std::abs(scale));
  if (empties_tell_) counts_.empty_scale_exponents.Add(bits >> 23);
}

void RowWindows::Judge() {
  const auto count = static_cast<double>(total_.count);
  const auto even = static_cast<double>(total_.even);
  const auto odd = static_cast<double>(total_.odd);
  // Zeros have no exponent, and weights that were once dequantized from 4 bits have many of them.
  const uint64_t numbers = total_.count - total_.zero;
  const double variance = numbers == 0 ? 0
                                       : Moments<uint64_t>{.count = numbers,
                                                           .sum = total_.even + total_.odd,
                                                           .squares = total_.squares}
                                             .Variance();
  ++counts_.windows;
  if (range_.IsFloat()) {
    const double negative = static_cast<double>(total_.negative) / count;
    if (std::abs(negative - 0.5) > kWindowSigns) ++counts_.shifted_windows;
    if (variance > kWindowExponents * kWindowExponents) ++counts_.noisy_windows;
  } else {
    const double shift = std::abs(even + odd - static_cast<double>(zeros_)) / count / range_.half;
    const bool nibbles = range_.kind == CodeRange::Kind::kNibbles;
    const double halves = nibbles ? 2 * std::abs(even - odd) / count / range_.half : 0;
    const double bar = symmetric_ ? kWindowMean : kWindowMeanAsymmetric;
    if (shift > bar || halves > kWindowMean) ++counts_.shifted_windows;
    if (judges_variance_ && variance > kWindowVariance * range_.half * range_.half) {
      ++counts_.noisy_windows;
    }
  }
  total_ = {};
  zeros_ = 0;
}

void HashRows(uint64_t n0, uint64_t rows, std::span<const std::byte> codes, WindowCounts& counts) {
  ForPanelRows(codes, rows, [&](uint64_t row, std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const uint64_t hash = Xxh3(text).low;
    counts.codes_hash += hash * (2 * (n0 + row) + 1);
    // Rows of a single code are alike without being copies.
    const bool varied = text.find_first_not_of(text[0]) != std::string_view::npos;
    if (hash % kKeptRows == 0 && varied) counts.row_hashes.push_back(hash);
  });
}

void ColumnWindows::Begin(uint64_t k) {
  hashes_.assign(k / kWindowColumns, 0);
  varied_.assign(k / kWindowColumns, 0);
  row_ = 0;
  counted_ = 0;
}

void ColumnWindows::Add(const Scheme& scheme, uint64_t k, uint64_t rows, const RowNumbers& numbers,
                        WindowCounts& counts) {
  const CodeRange range = RangeOf(scheme);
  if (range.IsFloat()) return;
  const size_t row_bytes = numbers.codes.size() / rows;
  for (uint64_t begin = 0; begin < rows;) {
    const uint64_t block = row_ / kColumnBlock;
    const uint64_t count = std::min(rows - begin, (block + 1) * kColumnBlock - row_);
    if (block % kCountedBlocks == 0) {
      Sum(range, k, numbers.codes.subspan(begin * row_bytes, count * row_bytes), count);
      Judge(scheme, range, count, numbers, counts);
      counted_ += count;
    }
    begin += count;
    row_ += count;
  }
}

void ColumnWindows::Sum(const CodeRange& range, uint64_t k, std::span<const std::byte> rows,
                        uint64_t count) {
  const auto middle = static_cast<int>(range.middle);
  sums_.assign(k, 0);
  squares_.assign(k, 0);
  if (range.kind == CodeRange::Kind::kBytes) {
    uint32_t* sums = sums_.data();
    uint32_t* squares = squares_.data();
    ForPanelRows(rows, count, [&](uint64_t /*row*/, std::span<const std::byte> bytes) {
      for (uint64_t i = 0; i < k; ++i) {
        const int value = std::to_integer<int>(bytes[i]) ^ static_cast<int>(range.flip);
        sums[i] += static_cast<uint32_t>(value);
        squares[i] += static_cast<uint32_t>((value - middle) * (value - middle));
      }
    });
    return;
  }
  SumNibbles(range.middle, k, rows, count);
}

void ColumnWindows::SumNibbles(unsigned middle, uint64_t k, std::span<const std::byte> rows,
                               uint64_t count) {
  std::array<uint8_t, kNibbleCodes> squares{};
  for (unsigned code = 0; code < 2 * middle; ++code) {
    const unsigned off = code < middle ? middle - code : code - middle;
    squares[code] = static_cast<uint8_t>(off * off);
  }
  constexpr uint64_t kInBytes = 4;  // codes of two bytes
  const uint64_t each = k / kInBytes;
  nibbles_.assign(2 * k, 0);
  NibbleColumnSums sums{};
  for (uint64_t q = 0; q < kInBytes; ++q) {
    sums.codes[q] = &nibbles_[q * each];
    sums.squares[q] = &nibbles_[(kInBytes + q) * each];
  }
  Kernels().add_nibble_columns(U8(rows.data()), rows.size() / count, count, k / kInBytes * 2,
                               squares.data(), sums);
  for (uint64_t i = 0; i < each; ++i) {
    for (uint64_t q = 0; q < kInBytes; ++q) {
      sums_[kInBytes * i + q] = sums.codes[q][i];
      squares_[kInBytes * i + q] = sums.squares[q][i];
    }
  }
}

void ColumnWindows::Judge(const Scheme& scheme, const CodeRange& range, uint64_t rows,
                          const RowNumbers& numbers, WindowCounts& counts) {
  const double bar = kColumnVariance * range.half * range.half;
  const double mean_bar = scheme.symmetric ? kWindowMean : kColumnMeanAsymmetric;
  for (uint64_t window = 0; window < hashes_.size(); ++window) {
    Moments<uint64_t> codes{.count = rows * kWindowColumns};
    for (uint64_t i = window * kWindowColumns; i < (window + 1) * kWindowColumns; ++i) {
      codes.squares += squares_[i];
      codes.sum += sums_[i];
      hashes_[window] = Mix(hashes_[window], uint64_t{sums_[i]} << 32 | squares_[i]);
      if (!IsConstant(sums_[i], squares_[i], rows, range.middle)) {
        varied_[window] = 1;
      } else if (rows >= kMinColumnRows) {
        const unsigned zero = numbers.zero_points[i / scheme.group_size] ^ range.flip;
        if (sums_[i] / rows != zero) ++counts.constant_columns;
      }
    }
    if (rows < kMinColumnRows) continue;
    ++counts.column_windows;
    const double off = codes.Mean() - static_cast<double>(range.middle);
    // The squares are of distances from the middle.
    const double variance =
        static_cast<double>(codes.squares) / static_cast<double>(codes.count) - off * off;
    if (scheme.group_size >= kMinVarianceGroup && variance > bar) ++counts.noisy_columns;
    if (std::abs(off) > mean_bar * range.half) ++counts.shifted_columns;
  }
}

void ColumnWindows::End(WindowCounts& counts) const {
  if (counted_ < kMinColumnRows) return;
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < hashes_.size(); ++i) {
    if (varied_[i] != 0) hashes.push_back(hashes_[i]);
  }
  counts.repeated_columns += CountRepeated(hashes);
}

namespace {

// Whether so many different values are among the bytes. Codes have them soon.
bool HasValues(std::span<const std::byte> bytes, unsigned least) {
  std::array<uint8_t, 256> seen{};
  unsigned values = 0;
  for (const std::byte byte : bytes) {
    uint8_t& known = seen[std::to_integer<uint8_t>(byte)];
    values += known ^ 1U;
    known = 1;
    if (values >= least) return true;
  }
  return false;
}

}  // namespace

void StoredBlocks::Add(uint64_t offset, std::span<const std::byte> bytes) {
  const uint64_t first = CeilDiv(offset, kBytes) * kBytes - offset;
  for (uint64_t at = first; at + kBytes <= bytes.size(); at += kBytes) {
    const auto block = bytes.subspan(at, kBytes);
    if (!HasValues(block, kMinValues)) continue;
    hashes_.push_back(Xxh3({reinterpret_cast<const char*>(block.data()), block.size()}).low);
  }
}

void StoredBlocks::Merge(const StoredBlocks& other) {
  hashes_.insert(hashes_.end(), other.hashes_.begin(), other.hashes_.end());
}

uint64_t StoredBlocks::Repeated() const {
  return CountRepeated(hashes_);
}

namespace {

// How much of the beginning the message shows.
constexpr uint64_t kShownText = 32;

bool IsText(std::byte byte) {
  const auto value = std::to_integer<unsigned>(byte);
  return (value >= 0x20 && value < 0x7F) || value == '\n' || value == '\r' || value == '\t';
}

}  // namespace

std::optional<TextRun> FindText(std::span<const std::byte> bytes) {
  for (uint64_t at = 0; at + kTextProbe <= bytes.size(); at += kTextStep) {
    if (!std::ranges::all_of(bytes.subspan(at, kTextProbe), IsText)) continue;
    uint64_t begin = at;
    while (begin > 0 && IsText(bytes[begin - 1])) --begin;
    uint64_t end = at + kTextProbe;
    while (end < bytes.size() && IsText(bytes[end])) ++end;
    std::bitset<256> letters;
    for (const std::byte byte : bytes.subspan(begin, end - begin)) {
      letters.set(std::to_integer<size_t>(byte));
    }
    if (end - begin < kMinText || letters.count() < kMinLetters) continue;
    std::string beginning;
    for (const std::byte byte : bytes.subspan(begin, kShownText)) {
      const auto letter = std::to_integer<char>(byte);
      beginning += letter < ' ' ? ' ' : letter;
    }
    return TextRun{.offset = begin, .bytes = end - begin, .beginning = std::move(beginning)};
  }
  return std::nullopt;
}

}  // namespace prepack
