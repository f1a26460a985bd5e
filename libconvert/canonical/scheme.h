#ifndef PREPACK_CANONICAL_SCHEME_H_
#define PREPACK_CANONICAL_SCHEME_H_

// What the numbers of a quantized linear layer mean, whatever quantizer stored them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace prepack {

// Type of one weight code in the canonical layout.
enum class CodeType : uint8_t {
  kU4,  // 0 … 15, always with a zero point (8 when the scheme is symmetric)
};

// What the weights share one scale with.
enum class Granularity : uint8_t {
  kChannel,  // one scale per output channel: G = 1
  kGroup,    // one scale per output channel and `group_size` consecutive input channels
};

// How activations are quantized before the multiplication.
enum class ActivationQuantization : uint8_t {
  kNone,
};

struct Scheme {
  CodeType code = CodeType::kU4;
  Granularity granularity = Granularity::kGroup;
  uint64_t group_size = 0;  // input channels per scale; K for kChannel
  bool symmetric = true;    // true: every zero point is ZeroOfSymmetric()
  ActivationQuantization activations = ActivationQuantization::kNone;

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

// Bits of one code.
uint32_t CodeBits(CodeType code);
// The zero point that a symmetric scheme implies: 2^(bits - 1).
uint8_t ZeroOfSymmetric(CodeType code);

// "channel" or "group", as in JSON.
std::string_view GranularityName(Granularity granularity);
std::optional<Granularity> GranularityFromName(std::string_view name);

// Short name as users know it: "w4a16".
std::string SchemeName(const Scheme& scheme);
// For people: "w4a16 group 128 symmetric".
std::string DescribeScheme(const Scheme& scheme);

}  // namespace prepack

#endif  // PREPACK_CANONICAL_SCHEME_H_
