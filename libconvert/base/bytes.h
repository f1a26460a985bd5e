#ifndef PREPACK_BASE_BYTES_H_
#define PREPACK_BASE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace prepack {

// Bytes as the numbers that kernels compute with.
inline const uint8_t* U8(const std::byte* bytes) {
  return reinterpret_cast<const uint8_t*>(bytes);
}
inline uint8_t* U8(std::byte* bytes) {
  return reinterpret_cast<uint8_t*>(bytes);
}

// At the speed of memory: == of vectors of std::byte goes byte by byte.
inline bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace prepack

#endif  // PREPACK_BASE_BYTES_H_
