#ifndef PREPACK_KERNELS_BYTE_CODES_H_
#define PREPACK_KERNELS_BYTE_CODES_H_

// Codes that are stored one per byte. Plain loops over bytes without branches, which the compiler
// vectorises; they are bound by memory.

#include <cstddef>
#include <cstdint>

namespace prepack {

// out[i] = bytes[i] + offset (mod 256). False when a result exceeds `max`, which is 2^b − 1.
inline bool OffsetBytes(const uint8_t* bytes, size_t count, uint8_t offset, uint8_t max,
                        uint8_t* out) {
  unsigned all = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto code = static_cast<uint8_t>(bytes[i] + offset);
    all |= code;
    out[i] = code;
  }
  return (all & ~static_cast<unsigned>(max)) == 0;
}

// The same, with two results per output byte, the first in the low half: writes ⌈count/2⌉ bytes.
// `max` is at most 15.
inline bool OffsetBytesToNibbles(const uint8_t* bytes, size_t count, uint8_t offset, uint8_t max,
                                 uint8_t* out) {
  unsigned all = 0;
  for (size_t i = 0; i + 1 < count; i += 2) {
    const auto low = static_cast<uint8_t>(bytes[i] + offset);
    const auto high = static_cast<uint8_t>(bytes[i + 1] + offset);
    all |= low | high;
    out[i / 2] = static_cast<uint8_t>(low | high << 4);
  }
  if (count % 2 != 0) {
    out[count / 2] = static_cast<uint8_t>(bytes[count - 1] + offset);
    all |= out[count / 2];
  }
  return (all & ~static_cast<unsigned>(max)) == 0;
}

// Is one of the FP8 E4M3 codes a NaN (0x7F or 0xFF)?
inline bool HasF8NaN(const uint8_t* codes, size_t count) {
  unsigned any = 0;
  for (size_t i = 0; i < count; ++i) any |= (codes[i] & 0x7FU) + 1U;
  return (any & 0x80U) != 0;
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_BYTE_CODES_H_
