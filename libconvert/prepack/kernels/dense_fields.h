#pragma once

// Fields of a few bits in a number of 64, for code that packs and unpacks them on any CPU.

#include <cstddef>
#include <cstdint>

namespace prepack {

// `count` (at most 8) bytes as a little-endian number.
inline uint64_t LoadLittle(const uint8_t* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

inline void StoreLittle(uint64_t value, size_t count, uint8_t* bytes) {
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

// The lowest `ones` bits of every `period`.
constexpr uint64_t FieldMask(unsigned ones, unsigned period) {
  uint64_t mask = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (bit % period < ones) mask |= uint64_t{1} << bit;
  }
  return mask;
}

}  // namespace prepack
