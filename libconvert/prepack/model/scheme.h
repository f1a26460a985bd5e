#pragma once

// What the numbers of a quantized linear layer mean, whatever quantizer stored them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace prepack {

// How one weight code is held in the canonical layout (see panel.h for the bytes).
enum class CodeType : uint8_t {
  kU4,      // unsigned, 1 to 4 bits, two per byte, always with a zero point
  kU8,      // unsigned, 5 to 8 bits, one per byte, always with a zero point
  kS8,      // signed, one per byte, symmetric: the zero point is 0
  kF8E4M3,  // the 8 bits of a finite-only FP8 number ("fn": no infinity, NaN is 0x7F and 0xFF)
  kF4E2M1,  // the 4 bits of an FP4 number, two per byte: 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the
            // sign
  kBF16,    // no code: the weight itself, dequantized; two bytes, no scale
};

// What the weights share one scale with.
enum class Granularity : uint8_t {
  kTensor,   // one scale for the module
  kChannel,  // one scale per output channel: G = 1
  kGroup,    // one scale per output channel and `group_size` consecutive input channels
  kBlock,    // one scale per `scale_rows` output channels and `group_size` input channels
};

// How activations are quantized before the multiplication.
enum class ActivationType : uint8_t {
  kNone,   // they stay in 16 or 32 bits
  kInt,    // integers of `bits` bits
  kFloat,  // floating point of `bits` bits
};

// What activations share one scale with.
enum class ActivationGranularity : uint8_t { kTensor, kToken, kGroup };

struct ActivationScheme {
  ActivationType type = ActivationType::kNone;
  uint32_t bits = 16;
  bool symmetric = true;
  // true: scales (and zero points) are computed at run time; false: they come with the checkpoint.
  bool dynamic = true;
  ActivationGranularity granularity = ActivationGranularity::kToken;
  uint64_t group_size = 0;  // of kGroup, else 0

  friend bool operator==(const ActivationScheme&, const ActivationScheme&) = default;
};

struct Scheme {
  CodeType code = CodeType::kU4;
  uint32_t bits = 4;  // used bits of a code
  Granularity granularity = Granularity::kGroup;
  uint64_t group_size = 0;  // input channels per scale; K for kTensor and kChannel
  uint64_t scale_rows = 1;  // output channels per scale; N for kTensor, above 1 for kBlock, else 1
  bool symmetric = true;    // true: every zero point is ZeroOfSymmetric()
  ActivationScheme activations = {};

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

// Bits that a code takes in the canonical layout: 4, 8 or 16.
constexpr uint32_t CodeBits(CodeType code) {
  if (code == CodeType::kU4 || code == CodeType::kF4E2M1) return 4;
  return code == CodeType::kBF16 ? 16 : 8;
}
// Codes are held two per byte.
constexpr bool IsNibble(CodeType code) {
  return CodeBits(code) == 4;
}
// Codes are floating-point numbers: they have a sign and no zero point.
constexpr bool IsFloatCode(CodeType code) {
  return code == CodeType::kF8E4M3 || code == CodeType::kF4E2M1;
}
// The unsigned type that holds codes of 1 to 8 bits.
constexpr CodeType UnsignedCodeFor(uint32_t bits) {
  return bits <= 4 ? CodeType::kU4 : CodeType::kU8;
}
// The zero point that a symmetric scheme implies: 2^(bits - 1) for unsigned codes, else 0.
uint8_t ZeroOfSymmetric(const Scheme& scheme);

// "tensor", "channel", "group" or "block", as in JSON.
std::string_view GranularityName(Granularity granularity);
std::optional<Granularity> GranularityFromName(std::string_view name);
// "u4", "u8", "s8", "f8e4m3", "f4e2m1" or "bf16", as in JSON.
std::string_view CodeTypeName(CodeType code);
std::optional<CodeType> CodeTypeFromName(std::string_view name);
// "tensor", "token" or "group", as in JSON.
std::string_view ActivationGranularityName(ActivationGranularity granularity);
std::optional<ActivationGranularity> ActivationGranularityFromName(std::string_view name);

// The scheme without what follows from N, in which layers that are run as one may differ.
Scheme WithoutN(Scheme scheme);

// Short name as users know it: weights, then activations: "w4a16", "w8a8", "wfp8afp8",
// "wfp4a16".
std::string SchemeName(const Scheme& scheme);
// For people: "8-bit int per token dynamic", "none".
std::string DescribeActivations(const ActivationScheme& activations);
// For people: "w4a16 group 128 symmetric".
std::string DescribeScheme(const Scheme& scheme);

// The scheme that a user asks the kernels to compute with.
enum class WantedScheme : uint8_t {
  kAuto,   // what the checkpoint says, as far as CPU kernels do it
  kW4A16,  // 4-bit weights, activations not quantized
  kW4A8,   // 4-bit weights, activations of 8 bits, per token, at run time
  kW8A8,
  kW8A16,
  kBF16,  // weights of any width, dequantized to bf16 before; activations not quantized
};

// The activations that a module with such weights is multiplied with; nullopt if the scheme is not
// for weights of this width. kAuto gives FP8 and FP4 weights 16-bit activations, which every CPU
// kernel for them takes, whatever the checkpoint says.
std::optional<ActivationScheme> ActivationsFor(const Scheme& weights, WantedScheme wanted);

}  // namespace prepack
