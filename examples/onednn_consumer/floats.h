#ifndef ONEDNN_CONSUMER_FLOATS_H_
#define ONEDNN_CONSUMER_FLOATS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

uint16_t ToBF16(float value);  // finite; to the nearest, ties to even
float FromBF16(uint16_t bits);

// A part in F32, BF16 or F16.
std::vector<float> ReadFloats(const std::string& dtype, std::span<const std::byte> bytes);

// Element i of an array in a file, which may lie at any address.
template <typename T>
T Load(std::span<const std::byte> bytes, uint64_t i) {
  T value{};
  std::memcpy(&value, bytes.subspan(i * sizeof(T), sizeof(T)).data(), sizeof(T));
  return value;
}

#endif  // ONEDNN_CONSUMER_FLOATS_H_
