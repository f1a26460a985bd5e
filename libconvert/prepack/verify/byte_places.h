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

// Bytes of 16 words by their place in the word, the lowest first.
inline std::array<Bytes, 4> BytesOfWords(const uint32_t* words) {
  const std::array four = {LoadBytes(words), LoadBytes(words + 4), LoadBytes(words + 8),
                           LoadBytes(words + 12)};
  const Bytes even = EvenBytes(four[0], four[1]);
  const Bytes more_even = EvenBytes(four[2], four[3]);
  const Bytes odd = OddBytes(four[0], four[1]);
  const Bytes more_odd = OddBytes(four[2], four[3]);
  return {EvenBytes(even, more_even), EvenBytes(odd, more_odd), OddBytes(even, more_even),
          OddBytes(odd, more_odd)};
}

// The other way: the 16 words that have these bytes.
inline void WordsOfBytes(const std::array<Bytes, 4>& bytes, uint32_t* words) {
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
  for (size_t half = 0; half < 2; ++half) {
    const std::array both = {zip_low(first[half], second[half]),
                             zip_high(first[half], second[half])};
    std::memcpy(words + 8 * half, both.data(), sizeof both);
  }
}

// Bytes of up to four rows in the order of `places`: sorted[row][i] = from[row][places[i]]. All
// four are looked up together, as words. Rows have `count` bytes and lie side by side.
void SortBytes(const int8_t* from, uint64_t rows, const uint32_t* places, uint64_t count,
               std::vector<uint32_t>& words, std::vector<int8_t>& sorted);

}  // namespace prepack
