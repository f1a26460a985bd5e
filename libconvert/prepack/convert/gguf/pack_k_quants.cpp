#include "prepack/convert/gguf/pack_k_quants.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/convert/gguf/sub_scales.h"

namespace prepack::gguf {
namespace {

using enum GgmlType;

constexpr uint32_t kRow = 32;

// What a superblock stores beside its codes.
struct Scales {
  SubScales scales;
  SubScales minima;
};

// Finds them for superblock after superblock. Neighbours often have the same.
class ScaleFinder {
 public:
  ScaleFinder(const IntegerRange& range, const Scheme& scheme, uint64_t k, const CodeRow& row)
      : range_(range), group_(std::min<uint64_t>(scheme.group_size, k)), row_(row) {}

  // null: there are none.
  const Scales* Find(uint64_t superblock) {
    const uint32_t count = kSuperBlock / range_.group;
    std::array<double, kMostSubScales> scales = {};
    std::array<double, kMostSubScales> minima = {};
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t group = (superblock * kSuperBlock + uint64_t{i} * range_.group) / group_;
      scales[i] = row_.scales[group];
      if (range_.has_minima) minima[i] = scales[i] * row_.zero_points[group];
    }
    if (is_known_ && scales == scales_ && minima == minima_) return &found_;
    is_known_ = false;
    const auto found =
        FindSubScales({scales.data(), count}, range_.least_factor, range_.most_factor);
    const auto under = FindSubScales({minima.data(), count}, 0, range_.most_factor);
    if (!found || !under) return nullptr;
    found_ = {.scales = *found, .minima = *under};
    scales_ = scales;
    minima_ = minima;
    is_known_ = true;
    return &found_;
  }

 private:
  const IntegerRange& range_;
  const uint64_t group_;
  const CodeRow& row_;
  bool is_known_ = false;
  std::array<double, kMostSubScales> scales_ = {};
  std::array<double, kMostSubScales> minima_ = {};
  Scales found_;
};

using Codes = std::array<uint8_t, kSuperBlock>;

void PutHalf(uint16_t half, uint8_t* out) {
  std::memcpy(out, &half, sizeof half);
}

// `bits` bits of each code from bit `from` on, of rows that lie one above the other: in every 32
// bytes those of 8 / bits rows.
void PutRows(const Codes& codes, uint32_t from, uint32_t bits, uint8_t* out) {
  const uint32_t rows = 8 / bits;
  const uint32_t mask = (1U << bits) - 1;
  for (uint32_t first = 0; first < kSuperBlock; first += rows * kRow, out += kRow) {
    for (uint32_t i = 0; i < kRow; ++i) {
      uint32_t byte = 0;
      for (uint32_t row = 0; row < rows; ++row) {
        byte |= (codes[first + row * kRow + i] >> from & mask) << (row * bits);
      }
      out[i] = static_cast<uint8_t>(byte);
    }
  }
}

void PutQ2K(const Codes& codes, const Scales& scales, uint8_t* out) {
  for (uint32_t i = 0; i < 16; ++i) {
    out[i] = static_cast<uint8_t>(scales.scales.factors[i] | scales.minima.factors[i] << 4);
  }
  PutRows(codes, 0, 2, out + 16);
  PutHalf(scales.scales.super, out + 80);
  PutHalf(scales.minima.super, out + 82);
}

void PutQ3K(const Codes& codes, const Scales& scales, uint8_t* out) {
  PutRows(codes, 2, 1, out);
  PutRows(codes, 0, 2, out + 32);
  uint8_t* packed = out + 96;
  std::fill_n(packed, 12, uint8_t{0});
  for (uint32_t i = 0; i < 16; ++i) {
    const auto factor = static_cast<uint32_t>(scales.scales.factors[i] + 32);
    packed[i % 8] |= static_cast<uint8_t>((factor & 15) << (i / 8 * 4));
    packed[8 + i % 4] |= static_cast<uint8_t>(factor >> 4 << (i / 4 * 2));
  }
  PutHalf(scales.scales.super, out + 108);
}

void PutScalesAndMinima(const Scales& scales, uint8_t* out) {
  PutHalf(scales.scales.super, out);
  PutHalf(scales.minima.super, out + 2);
  uint8_t* packed = out + 4;
  std::fill_n(packed, 12, uint8_t{0});
  for (uint32_t i = 0; i < 8; ++i) {
    const auto scale = static_cast<uint32_t>(scales.scales.factors[i]);
    const auto minimum = static_cast<uint32_t>(scales.minima.factors[i]);
    if (i < 4) {
      packed[i] |= static_cast<uint8_t>(scale);
      packed[i + 4] |= static_cast<uint8_t>(minimum);
    } else {
      packed[i + 4] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
      packed[i - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
      packed[i] |= static_cast<uint8_t>(minimum >> 4 << 6);
    }
  }
}

void PutQ4K(const Codes& codes, const Scales& scales, uint8_t* out) {
  PutScalesAndMinima(scales, out);
  PutRows(codes, 0, 4, out + 16);
}

void PutQ5K(const Codes& codes, const Scales& scales, uint8_t* out) {
  PutScalesAndMinima(scales, out);
  PutRows(codes, 4, 1, out + 16);
  PutRows(codes, 0, 4, out + 48);
}

void PutQ6K(const Codes& codes, const Scales& scales, uint8_t* out) {
  for (uint32_t i = 0; i < kSuperBlock / 2; ++i) {
    const uint32_t at = i / 64 * 128 + i % 64;
    out[i] = static_cast<uint8_t>((codes[at] & 15) | (codes[at + 64] & 15) << 4);
  }
  PutRows(codes, 4, 2, out + 128);
  for (uint32_t i = 0; i < 16; ++i) {
    out[192 + i] = static_cast<uint8_t>(scales.scales.factors[i]);
  }
  PutHalf(scales.scales.super, out + 208);
}

void PutSuperblock(GgmlType type, const Codes& codes, const Scales& scales, uint8_t* out) {
  switch (type) {
    case kQ2_K:
      return PutQ2K(codes, scales, out);
    case kQ3_K:
      return PutQ3K(codes, scales, out);
    case kQ4_K:
      return PutQ4K(codes, scales, out);
    case kQ5_K:
      return PutQ5K(codes, scales, out);
    default:
      return PutQ6K(codes, scales, out);
  }
}

}  // namespace

std::optional<uint64_t> FirstNotHeld(const IntegerRange& range, const Scheme& scheme, uint64_t k,
                                     const CodeRow& row) {
  ScaleFinder finder(range, scheme, k, row);
  for (uint64_t superblock = 0; superblock < k / kSuperBlock; ++superblock) {
    if (finder.Find(superblock) == nullptr) return superblock;
  }
  return std::nullopt;
}

bool PackSuperblocks(const IntegerRange& range, const Scheme& scheme, uint64_t k,
                     const CodeRow& row, std::byte* out) {
  ScaleFinder finder(range, scheme, k, row);
  const uint64_t group = std::min<uint64_t>(scheme.group_size, k);
  const uint32_t bytes = InfoOf(range.type).bytes;
  std::array<int, kMostSubScales> integers = {};
  Codes codes = {};
  for (uint64_t superblock = 0; superblock < k / kSuperBlock; ++superblock, out += bytes) {
    const Scales* scales = finder.Find(superblock);
    if (scales == nullptr) return false;
    for (uint32_t i = 0; i < kSuperBlock; i += kMostSubScales) {
      const uint64_t first = superblock * kSuperBlock + i;
      const int zero = range.has_minima ? range.low : row.zero_points[first / group] + range.low;
      TakeIntegers(scheme.code, U8(row.codes.data()), first, zero, integers);
      std::ranges::transform(integers, &codes[i],
                             [](int integer) { return static_cast<uint8_t>(integer); });
    }
    PutSuperblock(range.type, codes, *scales, U8(out));
  }
  return true;
}

}  // namespace prepack::gguf
