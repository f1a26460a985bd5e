#pragma once

// Words as their bytes, place by place: what four output channels have of 16 input channels.

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

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

// And back.
inline FourRegisters PutTogether(const FourRegisters& bytes) {
  const auto zip_low = [](Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  };
  const auto zip_high = [](Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
  };
  // The first and third bytes of each word, and the second and fourth.
  const std::array first = {zip_low(bytes[0], bytes[2]), zip_high(bytes[0], bytes[2])};
  const std::array second = {zip_low(bytes[1], bytes[3]), zip_high(bytes[1], bytes[3])};
  return {zip_low(first[0], second[0]), zip_high(first[0], second[0]), zip_low(first[1], second[1]),
          zip_high(first[1], second[1])};
}

// Bytes of up to kSortedRows rows in the order of `places`: sorted[row][i] = from[row][places[i]].
// All are looked up together, as words. Rows have `count` bytes and lie side by side.
inline constexpr uint64_t kSortedRows = 8;
void SortBytes(const int8_t* from, uint64_t rows, const uint32_t* places, uint64_t count,
               std::vector<uint64_t>& words, std::vector<int8_t>& sorted);

}  // namespace prepack
