#ifndef PREPACK_BASE_BYTES_H_
#define PREPACK_BASE_BYTES_H_

#include <cstddef>
#include <cstdint>

namespace prepack {

// Bytes as the numbers that kernels compute with.
inline const uint8_t* U8(const std::byte* bytes) {
  return reinterpret_cast<const uint8_t*>(bytes);
}
inline uint8_t* U8(std::byte* bytes) {
  return reinterpret_cast<uint8_t*>(bytes);
}

}  // namespace prepack

#endif  // PREPACK_BASE_BYTES_H_
