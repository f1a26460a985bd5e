#include "floats.h"

#include <bit>
#include <cmath>
#include <limits>

namespace {

float FromF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float magnitude = 0;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

}  // namespace

uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

std::vector<float> ReadFloats(const std::string& dtype, std::span<const std::byte> bytes) {
  const uint64_t count = bytes.size() / (dtype == "F32" ? sizeof(float) : sizeof(uint16_t));
  std::vector<float> values;
  for (uint64_t i = 0; i < count; ++i) {
    if (dtype == "F32") {
      values.push_back(Load<float>(bytes, i));
    } else {
      const auto half = Load<uint16_t>(bytes, i);
      values.push_back(dtype == "BF16" ? FromBF16(half) : FromF16(half));
    }
  }
  return values;
}
