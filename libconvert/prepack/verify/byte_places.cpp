#include "prepack/verify/byte_places.h"

#include <algorithm>

namespace prepack {
namespace {

constexpr uint64_t kPlacedRows = 4;
constexpr uint64_t kBytes = sizeof(Bytes);

// Where each of four rows begins; of rows that there are not, the last one.
template <typename T>
std::array<T*, kPlacedRows> BeginsOf(T* first, uint64_t rows, uint64_t count) {
  std::array<T*, kPlacedRows> begins{};
  for (uint64_t row = 0; row < kPlacedRows; ++row) {
    begins[row] = first + std::min(row, rows - 1) * count;
  }
  return begins;
}

}  // namespace

void SortBytes(const int8_t* from, uint64_t rows, const uint32_t* places, uint64_t count,
               std::vector<uint32_t>& words, std::vector<int8_t>& sorted) {
  words.resize(count);
  sorted.resize(rows * count);
  const uint64_t whole = count / kBytes * kBytes;
  const auto in = BeginsOf(from, rows, count);
  for (uint64_t i = 0; i < whole; i += kBytes) {
    WordsOfBytes(
        {LoadBytes(in[0] + i), LoadBytes(in[1] + i), LoadBytes(in[2] + i), LoadBytes(in[3] + i)},
        &words[i]);
  }
  for (uint64_t i = whole; i < count; ++i) {
    for (uint64_t row = kPlacedRows; row-- > 0;) {
      words[i] = words[i] << 8 | static_cast<uint8_t>(in[row][i]);
    }
  }
  const auto out = BeginsOf(sorted.data(), rows, count);
  const uint32_t* looked_up = words.data();
  for (uint64_t i = 0; i < whole; i += kBytes) {
    std::array<uint32_t, kBytes> some{};
    for (uint64_t j = 0; j < kBytes; ++j) some[j] = looked_up[places[i + j]];
    const std::array bytes = BytesOfWords(some.data());
    for (uint64_t row = 0; row < rows; ++row) std::memcpy(out[row] + i, &bytes[row], kBytes);
  }
  for (uint64_t i = whole; i < count; ++i) {
    for (uint64_t row = 0; row < rows; ++row) {
      out[row][i] = static_cast<int8_t>(looked_up[places[i]] >> 8 * row);
    }
  }
}

}  // namespace prepack
