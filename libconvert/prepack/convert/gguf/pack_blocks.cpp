#include "prepack/convert/gguf/pack_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/convert/gguf/integers.h"
#include "prepack/convert/gguf/pack_k_quants.h"
#include "prepack/gguf/blocks.h"
#include "prepack/layouts/parameters.h"

namespace prepack::gguf {
namespace {

using enum GgmlType;

constexpr uint32_t kHalf = 16;

// Plain operators of vectors, which compilers have for every instruction set: 16 bytes at a time
// keep up with memory.
using Bytes16 [[gnu::vector_size(16), gnu::aligned(1), gnu::may_alias]] = uint8_t;
using Words4 [[gnu::vector_size(16)]] = uint32_t;
using Floats4 [[gnu::vector_size(16)]] = float;
using Halves4 [[gnu::vector_size(8)]] = uint16_t;
using Halves8 [[gnu::vector_size(16)]] = uint16_t;

Bytes16 Load16(const uint8_t* bytes) {
  return *reinterpret_cast<const Bytes16*>(bytes);
}

// Shifts left, or right by a negative number, two bytes at a time: no instruction shifts bytes.
Bytes16 ShiftPairs(Bytes16 bytes, int by) {
  const auto pairs = reinterpret_cast<Halves8>(bytes);
  return reinterpret_cast<Bytes16>(by < 0 ? pairs >> -by : pairs << by);
}

// Codes i and i + 16 of 32, two per byte as in a panel, come together in byte i.
void SplitHalves(Bytes16 codes, uint8_t* out) {
  const Bytes16 high = __builtin_shufflevector(codes, codes, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10,
                                               11, 12, 13, 14, 15);
  const Bytes16 even = (codes & 0x0F) | (ShiftPairs(high, 4) & 0xF0);
  const Bytes16 odd = (ShiftPairs(codes, -4) & 0x0F) | (high & 0xF0);
  *reinterpret_cast<Bytes16*>(out) =
      __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

// The same of codes i and i + 8 of each 16.
void SplitSmallHalves(Bytes16 codes, uint8_t* out) {
  const auto words = reinterpret_cast<Words4>(codes);
  SplitHalves(reinterpret_cast<Bytes16>(__builtin_shufflevector(words, words, 0, 2, 1, 3)), out);
}

// 32 bytes less the zero point.
void PutBytes(const uint8_t* codes, uint8_t zero_point, uint8_t* out) {
  for (size_t i = 0; i < 32; i += sizeof(Bytes16)) {
    *reinterpret_cast<Bytes16*>(out + i) = Load16(codes + i) - zero_point;
  }
}

void PutNibbles(const int* integers, int offset, uint8_t* out) {
  for (uint32_t i = 0; i < kHalf; ++i) {
    const auto low = static_cast<unsigned>(integers[i] + offset);
    const auto high = static_cast<unsigned>(integers[kHalf + i] + offset);
    out[i] = static_cast<uint8_t>((low & 15U) | (high & 15U) << 4);
  }
}

void PutFiveBits(const int* integers, int offset, uint8_t* fifth, uint8_t* low) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 2 * kHalf; ++i) {
    bits |= (static_cast<unsigned>(integers[i] + offset) >> 4 & 1U) << i;
  }
  std::memcpy(fifth, &bits, sizeof bits);
  PutNibbles(integers, offset, low);
}

void PutIntegers(GgmlType type, const int* integers, uint8_t* block) {
  switch (type) {
    case kQ4_0:
      return PutNibbles(integers, 8, block + 2);
    case kQ4_1:
      return PutNibbles(integers, 0, block + 4);
    case kQ5_0:
      return PutFiveBits(integers, 16, block + 2, block + 6);
    case kQ5_1:
      return PutFiveBits(integers, 0, block + 4, block + 8);
    default:
      for (uint32_t i = 0; i < 2 * kHalf; ++i) block[2 + i] = static_cast<uint8_t>(integers[i]);
  }
}

// Are the bytes of codes those of a block, but for their order?
bool AreNibblesOfBlock(GgmlType type, const Scheme& scheme) {
  if (type == kMXFP4 || type == kQ4_1) return IsNibble(scheme.code);
  return type == kQ4_0 && scheme.code == CodeType::kU4 && scheme.bits == 4 && scheme.symmetric;
}

// `block_bytes` by value: what is written could be a structure, for all that the compiler knows.
void PackCodes(GgmlType type, uint32_t block_bytes, const Scheme& scheme, const CodeRow& row,
               uint64_t blocks, uint8_t* out) {
  const uint8_t* codes = U8(row.codes.data());
  if (AreNibblesOfBlock(type, scheme)) {
    for (uint64_t b = 0; b < blocks; ++b) {
      SplitHalves(Load16(codes + b * kHalf), out + b * block_bytes + block_bytes - kHalf);
    }
    return;
  }
  if (type == kNVFP4) {
    for (uint64_t b = 0; b < blocks; ++b) {
      for (size_t half = 0; half < 32; half += kHalf) {
        SplitSmallHalves(Load16(codes + b * 32 + half), out + b * block_bytes + 4 + half);
      }
    }
    return;
  }
  const bool over_minimum = RangeOf(type)->has_minima;
  std::array<int, size_t{2}* kHalf> integers = {};
  for (uint64_t b = 0; b < blocks; ++b) {
    const int zero = over_minimum ? 0 : row.zero_points[b * 32 / scheme.group_size];
    if (type == kQ8_0 && !IsNibble(scheme.code)) {
      PutBytes(codes + b * 2 * kHalf, static_cast<uint8_t>(zero), out + b * block_bytes + 2);
      continue;
    }
    TakeIntegers(scheme.code, codes, b * 2 * kHalf, zero, integers);
    PutIntegers(type, integers.data(), out + b * block_bytes);
  }
}

constexpr uint32_t kLeastNormal = 0x38800000;  // 2^-14
constexpr uint32_t kInfinite = 0x477FF000;     // 65520, which rounds to infinity
constexpr uint32_t kLostBits = 0x1FFF;

// The nearest f16. `rounded` counts those that are another number: where they are normal, the bits
// that get lost say so.
uint16_t NarrowTo16(float value, uint64_t& rounded) {
  const uint16_t half = F32ToF16(value);
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool normal = (bits & 0x7FFFFFFFU) >= kLeastNormal;
  rounded += (normal ? (bits & kLostBits) != 0 : F16ToF32(half) != value) ? 1U : 0U;
  return half;
}

// NarrowTo16 of four numbers. `fits` loses the lanes that are neither zero nor normal and finite in
// f16; `lost` counts, lane by lane.
void NarrowFour(const float* values, uint16_t* out, Words4& fits, Words4& lost) {
  Words4 bits;
  std::memcpy(&bits, values, sizeof bits);
  const Words4 magnitude = bits & 0x7FFFFFFFU;
  const auto normal = reinterpret_cast<Words4>(magnitude >= kLeastNormal);
  fits &= (normal & reinterpret_cast<Words4>(magnitude < kInfinite)) |
          reinterpret_cast<Words4>(magnitude == 0U);
  lost -= reinterpret_cast<Words4>((bits & kLostBits) != 0U);  // a lane that is true is −1
  const Words4 odd = magnitude >> 13 & 1U;
  const Words4 nearest = (magnitude - kLeastNormal + (1U << 23) + kLostBits / 2 + odd) >> 13;
  const auto halves = __builtin_convertvector((nearest & normal) | (bits >> 16 & 0x8000U), Halves4);
  std::memcpy(out, &halves, sizeof halves);
}

// All of them so, unless one does not fit.
bool NarrowNormal(std::span<const float> values, uint16_t* out, uint64_t& rounded) {
  Words4 fits = ~Words4{};
  Words4 lost = {};
  const size_t whole = values.size() / 4 * 4;
  for (size_t i = 0; i < whole; i += 4) NarrowFour(&values[i], out + i, fits, lost);
  if (whole < values.size()) {
    std::array<float, 4> last = {};
    std::array<uint16_t, 4> halves = {};
    std::ranges::copy(values.subspan(whole), last.begin());
    NarrowFour(last.data(), halves.data(), fits, lost);
    std::copy_n(halves.begin(), values.size() - whole, out + whole);
  }
  if ((fits[0] & fits[1] & fits[2] & fits[3]) == 0) return false;
  rounded += uint64_t{lost[0]} + lost[1] + lost[2] + lost[3];
  return true;
}

// The nearest f16 of each, up to the first that would be infinite; how many those are.
size_t NarrowAll(std::span<const float> values, uint16_t* out, uint64_t& rounded) {
  if (NarrowNormal(values, out, rounded)) return values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = NarrowTo16(values[i], rounded);
    if ((out[i] & 0x7FFFU) == 0x7C00U) return i;
  }
  return values.size();
}

// Puts the same bytes at the start of every block of a group.
template <typename Head>
std::byte* PutHeads(Head head, uint64_t blocks, uint32_t stride, std::byte* out) {
  for (uint64_t b = 0; b < blocks; ++b, out += stride) std::memcpy(out, &head, sizeof head);
  return out;
}

Status NoScale(std::string_view type, float scale) {
  return Unsupported("", fmt::format("{} has no number for a scale", type))
      .Found(fmt::format("{}", scale))
      .Hint("--fallback dequantize stores the module as floats");
}

}  // namespace

std::string WhyNotHeld(GgmlType type, const Scheme& scheme, uint64_t k) {
  const GgmlTypeInfo& info = InfoOf(type);
  if (type == kMXFP4 || type == kNVFP4) {
    const uint64_t group = type == kMXFP4 ? 32 : 16;
    if (scheme.code != CodeType::kF4E2M1 || scheme.group_size != group) {
      return fmt::format("{} holds FP4 in groups of {}", info.name, group);
    }
  } else {
    const IntegerRange* range = RangeOf(type);
    if (range == nullptr) return fmt::format("prepack does not pack {}", info.name);
    if (std::string why = WhyNotIn(*range, scheme); !why.empty()) return why;
    if (scheme.group_size < k && scheme.group_size % range->group != 0) {
      return fmt::format("groups of {} are no multiple of {}, those of {}", scheme.group_size,
                         range->group, info.name);
    }
  }
  if (k % info.block == 0) return "";
  return fmt::format("K = {} is no multiple of {}, the block of {}", k, info.block, info.name);
}

double Rounded::sqnr() const {
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

RowPacker::RowPacker(GgmlType type, const Scheme& scheme, uint64_t k, const GlobalScale& global)
    : type_(type),
      info_(InfoOf(type)),
      scheme_(scheme),
      k_(k),
      global_(global),
      row_bytes_(k / info_.block * info_.bytes),
      has_minimum_(HasF16Minimum(type)),
      below_global_(global.divides ? global.value : 1 / global.value) {
  for (size_t bits = 0; bits < numbers_.size(); ++bits) {
    numbers_[bits] = global.Apply(F8E4M3ToF32(static_cast<uint8_t>(bits)));
  }
}

// The number of unsigned FP8 that is the scale under the global one. Nearly always a plain product
// finds it.
std::optional<uint8_t> RowPacker::UnsignedE4M3(float scale) const {
  uint8_t bits = F32ToF8E4M3(scale * below_global_);
  if (bits < numbers_.size() && numbers_[bits] == scale) return bits;
  bits = F32ToF8E4M3(BelowGlobal(global_, scale));
  if (bits < numbers_.size() && numbers_[bits] == scale) return bits;
  return std::nullopt;
}

// Those of four scales, if all are normal numbers, which takes no search.
bool RowPacker::FourE4M3(const float* scales, std::byte* out) const {
  constexpr uint32_t kBelowLeast = 0x3C000000;  // 2^-7
  Floats4 four;
  std::memcpy(&four, scales, sizeof four);
  const auto wanted = reinterpret_cast<Words4>(four * below_global_);
  const Words4 bits = (wanted - kBelowLeast + 0x7FFFFU + (wanted >> 20 & 1U)) >> 20;
  const auto numbers = reinterpret_cast<Floats4>((bits << 20) + kBelowLeast);
  const Floats4 applied = global_.divides ? numbers / global_.value : numbers * global_.value;
  const auto found = reinterpret_cast<Words4>(applied == four) &
                     reinterpret_cast<Words4>(bits >= 8U) & reinterpret_cast<Words4>(bits < 0x7FU);
  if ((found[0] & found[1] & found[2] & found[3]) == 0) return false;
  for (int i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(bits[i]);
  return true;
}

Status RowPacker::PackScales(const CodeRow& row, std::byte* out, Rounded& rounded) const {
  constexpr uint64_t kTogether = 64;  // groups
  const uint64_t group_blocks = std::min<uint64_t>(scheme_.group_size, k_) / info_.block;
  uint64_t blocks_left = k_ / info_.block;
  std::array<uint16_t, kTogether> scales = {};
  std::array<float, kTogether> products = {};
  std::array<uint16_t, kTogether> minima = {};
  for (uint64_t begin = 0; begin < row.scales.size(); begin += kTogether) {
    const std::span<const float> some =
        row.scales.subspan(begin, std::min(kTogether, row.scales.size() - begin));
    size_t finite = NarrowAll(some, scales.data(), rounded.scales);
    if (finite < some.size()) return NoScale("f16", some[finite]);
    if (has_minimum_) {
      const uint8_t* zero_points = &row.zero_points[begin];
      for (uint64_t i = 0; i < some.size(); ++i) {
        products[i] = -(static_cast<float>(zero_points[i]) * some[i]);
      }
      finite = NarrowAll(std::span(products).first(some.size()), minima.data(), rounded.minima);
      if (finite < some.size()) return NoScale("f16", products[finite]);
    }
    for (uint64_t i = 0; i < some.size(); ++i) {
      const uint64_t blocks = std::min(group_blocks, blocks_left);
      blocks_left -= blocks;
      out = has_minimum_ ? PutHeads(scales[i] | uint32_t{minima[i]} << 16, blocks, info_.bytes, out)
                         : PutHeads(scales[i], blocks, info_.bytes, out);
    }
  }
  return {};
}

Status RowPacker::Pack(const CodeRow& row, std::byte* out, Rounded& rounded) const {
  const uint64_t blocks = k_ / info_.block;
  if (const IntegerRange* range = RangeOf(type_); range != nullptr && range->has_superblocks()) {
    if (PackSuperblocks(*range, scheme_, k_, row, out)) return {};
    return Unsupported("", "the scales are no multiples of one f16 in each block of 256")
        .Hint("Has the checkpoint changed since it was planned?");
  }
  PackCodes(type_, info_.bytes, scheme_, row, blocks, U8(out));
  if (type_ == kMXFP4) {
    for (uint64_t b = 0; b < blocks; ++b) {
      const uint8_t bits = F32ToF8E8M0(row.scales[b]);
      if (F8E8M0ToF32(bits) != row.scales[b]) return NoScale("MXFP4", row.scales[b]);
      out[b * info_.bytes] = static_cast<std::byte>(bits);
    }
    return {};
  }
  if (type_ == kNVFP4) {
    for (uint64_t b = 0; b < blocks; ++b) {
      const float* scales = &row.scales[4 * b];
      std::byte* to = out + b * info_.bytes;
      if (FourE4M3(scales, to)) continue;
      for (size_t i = 0; i < 4; ++i) {
        const std::optional<uint8_t> bits = UnsignedE4M3(scales[i]);
        if (!bits) return NoScale("NVFP4", scales[i]);
        to[i] = static_cast<std::byte>(*bits);
      }
    }
    return {};
  }
  return PackScales(row, out, rounded);
}

}  // namespace prepack::gguf
