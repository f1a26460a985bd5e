#include "prepack/gguf/blocks.h"

#include <bit>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"

namespace prepack::gguf {
namespace {

using enum GgmlType;

constexpr uint32_t kHalf = 16;  // weights in the low nibbles of a block of 32, and in the high ones

uint16_t U16At(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

uint32_t U32At(const uint8_t* bytes) {
  return U16At(bytes) | uint32_t{U16At(bytes + 2)} << 16;
}

float HalfAt(const uint8_t* bytes) {
  return F16ToF32(U16At(bytes));
}

// `half` low nibbles, then as many high ones, less `offset`.
void TakeNibbles(const uint8_t* bytes, uint32_t half, int offset, int16_t* codes) {
  for (uint32_t i = 0; i < half; ++i) {
    codes[i] = static_cast<int16_t>((bytes[i] & 15) - offset);
    codes[half + i] = static_cast<int16_t>((bytes[i] >> 4) - offset);
  }
}

// Nibbles, and a fifth bit for each from a word.
void TakeFiveBits(const uint8_t* high, const uint8_t* low, int offset, int16_t* codes) {
  TakeNibbles(low, kHalf, offset, codes);
  const uint32_t fifth = U32At(high);
  for (uint32_t i = 0; i < 2 * kHalf; ++i) {
    codes[i] = static_cast<int16_t>(codes[i] + static_cast<int16_t>((fifth >> i & 1U) << 4));
  }
}

void DecodeQ8(const uint8_t* bytes, Block& block) {
  for (uint32_t i = 0; i < 32; ++i) {
    block.codes[i] = static_cast<int16_t>(bytes[i] < 128 ? bytes[i] : bytes[i] - 256);
  }
}

// 128 bytes of low nibbles, 64 of two high bits, 16 signed scales of the scale at the end. Each
// half of the block has its own half of these.
void DecodeQ6K(const uint8_t* bytes, Block& block) {
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t half = i / 128;
    const uint32_t in_half = i % 128;
    const uint8_t low = bytes[64 * half + in_half % 64] >> (in_half / 64 * 4);
    const uint8_t high = bytes[128 + 32 * half + in_half % 32] >> (in_half / 32 * 2);
    block.codes[i] = static_cast<int16_t>(((low & 15) | (high & 3) << 4) - 32);
  }
  const float scale = HalfAt(bytes + 208);
  for (uint32_t i = 0; i < 16; ++i) {
    block.scales[i] = scale * static_cast<float>(static_cast<int8_t>(bytes[192 + i]));
  }
  block.group = 16;
}

// 64 bytes from `bytes`, each with two low bits of four weights that are 32 apart.
void TakePairs(const uint8_t* bytes, int16_t* codes) {
  for (uint32_t i = 0; i < 256; ++i) {
    codes[i] = static_cast<int16_t>(bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
  }
}

// 16 bytes with a scale and a minimum of four bits each, 64 of two bits, and what both multiply.
void DecodeQ2K(const uint8_t* bytes, Block& block) {
  TakePairs(bytes + 16, block.codes.data());
  for (uint32_t i = 0; i < 16; ++i) {
    block.scales[i] = HalfAt(bytes + 80) * static_cast<float>(bytes[i] & 15);
    block.minima[i] = -(HalfAt(bytes + 82) * static_cast<float>(bytes[i] >> 4));
  }
  block.group = 16;
}

// 32 bytes of third bits (a bit that is not set takes 4 off), 64 of two low bits, 12 of scales, and
// the scale of these. Of the 16 scales, of 6 bits and 32 too large, four bits lie in nibbles of the
// first 8 bytes, and two in the last 4.
void DecodeQ3K(const uint8_t* bytes, Block& block) {
  TakePairs(bytes + 32, block.codes.data());
  for (uint32_t i = 0; i < 256; ++i) {
    if ((bytes[i % 32] >> (i / 32) & 1) == 0) block.codes[i] -= 4;
  }
  const uint8_t* scales = bytes + 96;
  for (uint32_t i = 0; i < 16; ++i) {
    const int low = scales[i % 8] >> (i / 8 * 4) & 15;
    const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
    block.scales[i] = HalfAt(bytes + 108) * static_cast<float>((low | high << 4) - 32);
  }
  block.group = 16;
}

// Of Q4_K and Q5_K: two halves, and 12 bytes with 8 scales and 8 minima of 6 bits. The first four
// of each are the low bits of bytes; the others are nibbles, with two bits on top of those.
void TakeScalesAndMinima(const uint8_t* bytes, Block& block) {
  const uint8_t* scales = bytes + 4;
  for (uint32_t i = 0; i < 8; ++i) {
    int scale = scales[i] & 63;
    int minimum = scales[i + 4] & 63;
    if (i >= 4) {
      scale = (scales[i + 4] & 15) | scales[i - 4] >> 6 << 4;
      minimum = scales[i + 4] >> 4 | scales[i] >> 6 << 4;
    }
    block.scales[i] = HalfAt(bytes) * static_cast<float>(scale);
    block.minima[i] = -(HalfAt(bytes + 2) * static_cast<float>(minimum));
  }
  block.group = 32;
}

void DecodeQ4K(const uint8_t* bytes, Block& block) {
  TakeScalesAndMinima(bytes, block);
  for (uint32_t i = 0; i < 4; ++i) {
    TakeNibbles(bytes + 16 + 32ULL * i, 32, 0, block.codes.data() + 64ULL * i);
  }
}

// As Q4_K, with 32 bytes of fifth bits in between.
void DecodeQ5K(const uint8_t* bytes, Block& block) {
  TakeScalesAndMinima(bytes, block);
  const uint8_t* fifth = bytes + 16;
  for (uint32_t i = 0; i < 4; ++i) {
    TakeNibbles(bytes + 48 + 32ULL * i, 32, 0, block.codes.data() + 64ULL * i);
  }
  for (uint32_t i = 0; i < 256; ++i) {
    block.codes[i] = static_cast<int16_t>(block.codes[i] | (fifth[i % 32] >> (i / 32) & 1) << 4);
  }
}

// Half of 2^(bits − 127), of which the two smallest are subnormal.
float HalfOfE8M0(uint8_t bits) {
  return std::bit_cast<float>(bits < 2 ? 0x00200000U << bits
                                       : static_cast<uint32_t>(bits - 1) << 23);
}

// Half of an unsigned E4M3. ggml does not look at the sign, and takes 0x7F for zero.
float HalfOfUE4M3(uint8_t bits) {
  if (bits == 0x7F) return 0;
  const auto mantissa = static_cast<float>(bits & 7U);
  const uint32_t exponent = bits >> 3 & 15U;
  if (exponent == 0) return mantissa * 0x1p-10F;
  return (1 + mantissa / 8) * std::bit_cast<float>((exponent + 119U) << 23);
}

void DecodeNVFP4(const uint8_t* bytes, Block& block) {
  block.group = 16;
  for (size_t i = 0; i < 4; ++i) {
    block.scales[i] = HalfOfUE4M3(bytes[i]);
    TakeNibbles(bytes + 4 + 8 * i, 8, 0, block.codes.data() + 16 * i);
  }
}

// Of types with a scale of f16 in front.
void DecodeOneScale(GgmlType type, const uint8_t* bytes, Block& block) {
  block.scales[0] = HalfAt(bytes);
  int16_t* codes = block.codes.data();
  switch (type) {
    case kQ4_0:
      return TakeNibbles(bytes + 2, kHalf, 8, codes);
    case kQ5_0:
      return TakeFiveBits(bytes + 2, bytes + 6, 16, codes);
    case kQ4_1:
      block.minima[0] = HalfAt(bytes + 2);
      return TakeNibbles(bytes + 4, kHalf, 0, codes);
    case kQ5_1:
      block.minima[0] = HalfAt(bytes + 2);
      return TakeFiveBits(bytes + 4, bytes + 8, 0, codes);
    default:
      return DecodeQ8(bytes + 2, block);
  }
}

void DequantizeFloats(GgmlType type, const uint8_t* bytes, std::span<float> weights) {
  if (type == kF32) {
    std::memcpy(weights.data(), bytes, weights.size_bytes());
    return;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint16_t bits = U16At(bytes + 2 * i);
    weights[i] = type == kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }
}

bool IsFloat16or32(GgmlType type) {
  return type == kF32 || type == kF16 || type == kBF16;
}

bool IsE2M1(GgmlType type) {
  return type == kMXFP4 || type == kNVFP4;
}

}  // namespace

bool HasCodes(GgmlType type) {
  switch (type) {
    case kQ4_0:
    case kQ4_1:
    case kQ5_0:
    case kQ5_1:
    case kQ8_0:
    case kQ2_K:
    case kQ3_K:
    case kQ4_K:
    case kQ5_K:
    case kQ6_K:
    case kMXFP4:
    case kNVFP4:
      return true;
    default:
      return false;
  }
}

bool HasMinima(GgmlType type) {
  return HasF16Minimum(type) || type == kQ2_K || type == kQ4_K || type == kQ5_K;
}

bool HasF16Minimum(GgmlType type) {
  return type == kQ4_1 || type == kQ5_1;
}

bool IsDecoded(GgmlType type) {
  return HasCodes(type) || IsFloat16or32(type);
}

namespace {

// Minima that the type does not have stay what they were.
void DecodeInto(GgmlType type, const std::byte* bytes, Block& block) {
  const uint8_t* raw = U8(bytes);
  block.group = InfoOf(type).block;
  switch (type) {
    case kQ2_K:
      DecodeQ2K(raw, block);
      break;
    case kQ3_K:
      DecodeQ3K(raw, block);
      break;
    case kQ4_K:
      DecodeQ4K(raw, block);
      break;
    case kQ5_K:
      DecodeQ5K(raw, block);
      break;
    case kQ6_K:
      DecodeQ6K(raw, block);
      break;
    case kNVFP4:
      DecodeNVFP4(raw, block);
      break;
    case kMXFP4:
      block.scales[0] = HalfOfE8M0(raw[0]);
      TakeNibbles(raw + 1, kHalf, 0, block.codes.data());
      break;
    default:
      DecodeOneScale(type, raw, block);
  }
}

// The weights of a block. −0 stays, where there is nothing to add.
template <typename ValueOf>
void ScaleCodes(const Block& block, bool has_minima, const ValueOf& value_of,
                std::span<float> weights) {
  for (size_t first = 0; first < weights.size(); first += block.group) {
    const int16_t* codes = &block.codes[first];
    float* out = &weights[first];
    const float scale = block.scales[first / block.group];
    const float minimum = block.minima[first / block.group];
    if (has_minima) {
      for (uint32_t i = 0; i < block.group; ++i) out[i] = value_of(codes[i]) * scale + minimum;
    } else {
      for (uint32_t i = 0; i < block.group; ++i) out[i] = value_of(codes[i]) * scale;
    }
  }
}

}  // namespace

float CodeValue(GgmlType type, int16_t code) {
  if (!IsE2M1(type)) return code;
  return 2 * F4E2M1ToF32(static_cast<uint8_t>(code)) + 0.0F;  // −0 + 0 is +0
}

Block DecodeBlock(GgmlType type, const std::byte* bytes) {
  Block block;
  DecodeInto(type, bytes, block);
  return block;
}

void Dequantize(GgmlType type, std::span<const std::byte> bytes, std::span<float> weights) {
  if (IsFloat16or32(type)) return DequantizeFloats(type, U8(bytes.data()), weights);
  const GgmlTypeInfo& info = InfoOf(type);
  const bool has_minima = HasMinima(type);
  Block block;
  for (size_t i = 0; i < weights.size() / info.block; ++i) {
    DecodeInto(type, bytes.data() + i * info.bytes, block);
    const std::span<float> own = weights.subspan(i * info.block, info.block);
    if (IsE2M1(type)) {
      ScaleCodes(
          block, has_minima, [=](int16_t code) { return CodeValue(type, code); }, own);
    } else {
      ScaleCodes(
          block, has_minima, [](int16_t code) { return static_cast<float>(code); }, own);
    }
  }
}

}  // namespace prepack::gguf
