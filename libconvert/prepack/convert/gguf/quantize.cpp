#include "prepack/convert/gguf/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "prepack/base/float_convert.h"

namespace prepack::gguf {
namespace {

constexpr size_t kBlock = 32;
constexpr float kMostCode = 127;

// Half away from zero, as C's roundf; numbers are at most 127.5.
int Round(float number) {
  const float magnitude = std::abs(number);
  const int whole = static_cast<int>(magnitude);
  const int rounded = whole + (magnitude - static_cast<float>(whole) >= 0.5F ? 1 : 0);
  return number < 0 ? -rounded : rounded;
}

}  // namespace

Status QuantizeQ8_0(std::span<const float> weights, std::byte* out, Rounded& rounded) {
  for (size_t at = 0; at < weights.size(); at += kBlock, out += 2 + kBlock) {
    const std::span<const float> block = weights.subspan(at, kBlock);
    float largest = 0;
    for (const float weight : block) largest = std::max(largest, std::abs(weight));
    const float scale = largest / kMostCode;
    // Of scales so small that their inverse is infinite f16 makes zero: codes mean nothing then.
    const float inverse = std::isfinite(1 / scale) ? 1 / scale : 0;
    const uint16_t half = F32ToF16(scale);
    const float stored = F16ToF32(half);
    if (!std::isfinite(stored)) {
      return Unsupported("", "the weights have no scale that Q8_0 can store")
          .Found(fmt::format("{} for 32 of them", scale))
          .Hint("--fallback dequantize stores the module as floats");
    }
    std::memcpy(out, &half, sizeof half);
    for (size_t i = 0; i < kBlock; ++i) {
      const int code = Round(block[i] * inverse);
      out[2 + i] = static_cast<std::byte>(code);
      const double weight = block[i];
      const double error = weight - double{stored} * code;
      rounded.signal += weight * weight;
      rounded.noise += error * error;
    }
  }
  rounded.quantized += weights.size();
  return {};
}

}  // namespace prepack::gguf
