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
      block.minimum = HalfAt(bytes + 2);
      return TakeNibbles(bytes + 4, kHalf, 0, codes);
    case kQ5_1:
      block.minimum = HalfAt(bytes + 2);
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
    case kQ6_K:
    case kMXFP4:
    case kNVFP4:
      return true;
    default:
      return false;
  }
}

bool IsDecoded(GgmlType type) {
  return HasCodes(type) || IsFloat16or32(type);
}

float CodeValue(GgmlType type, int16_t code) {
  if (!IsE2M1(type)) return code;
  return 2 * F4E2M1ToF32(static_cast<uint8_t>(code)) + 0.0F;  // −0 + 0 is +0
}

Block DecodeBlock(GgmlType type, const std::byte* bytes) {
  Block block;
  block.group = InfoOf(type).block;
  if (type == kQ6_K) {
    DecodeQ6K(U8(bytes), block);
  } else if (type == kNVFP4) {
    DecodeNVFP4(U8(bytes), block);
  } else if (type == kMXFP4) {
    block.scales[0] = HalfOfE8M0(U8(bytes)[0]);
    TakeNibbles(U8(bytes) + 1, kHalf, 0, block.codes.data());
  } else {
    DecodeOneScale(type, U8(bytes), block);
  }
  return block;
}

void Dequantize(GgmlType type, std::span<const std::byte> bytes, std::span<float> weights) {
  if (IsFloat16or32(type)) return DequantizeFloats(type, U8(bytes.data()), weights);
  const GgmlTypeInfo& info = InfoOf(type);
  const bool has_minimum = type == kQ4_1 || type == kQ5_1;
  for (size_t i = 0; i < weights.size() / info.block; ++i) {
    const Block block = DecodeBlock(type, bytes.data() + i * info.bytes);
    for (size_t j = 0; j < info.block; ++j) {
      const float product = CodeValue(type, block.codes[j]) * block.scales[j / block.group];
      // −0 stays, where there is nothing to add.
      weights[i * info.block + j] = has_minimum ? product + block.minimum : product;
    }
  }
}

}  // namespace prepack::gguf
