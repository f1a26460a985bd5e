#pragma once

// Words as their bytes, place by place: what four output channels have of 16 input channels.

#include <array>
#include <cstdint>
#include <cstring>

namespace prepack {

using Bytes [[gnu::vector_size(16)]] = uint8_t;

inline Bytes LoadBytes(const void* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// Every other byte of two registers, the first ones or the second ones.
inline Bytes EvenBytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
inline Bytes OddBytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// 16 words in order, or their bytes by their place in the word, the lowest first.
using FourRegisters = std::array<Bytes, 4>;

inline FourRegisters LoadFour(const void* words) {
  FourRegisters four;
  std::memcpy(four.data(), words, sizeof four);
  return four;
}

// From words to bytes.
inline FourRegisters TakeApart(const FourRegisters& words) {
  const Bytes even = EvenBytes(words[0], words[1]);
  const Bytes more_even = EvenBytes(words[2], words[3]);
  const Bytes odd = OddBytes(words[0], words[1]);
  const Bytes more_odd = OddBytes(words[2], words[3]);
  return {EvenBytes(even, more_even), EvenBytes(odd, more_odd), OddBytes(even, more_even),
          OddBytes(odd, more_odd)};
}

}  // namespace prepack
