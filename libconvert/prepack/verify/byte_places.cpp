#include "prepack/verify/byte_places.h"

#include <algorithm>

namespace prepack {
namespace {

constexpr uint64_t kBytes = sizeof(Bytes);

// Where each row begins; of rows that there are not, the last one.
template <typename T>
std::array<T*, kSortedRows> BeginsOf(T* first, uint64_t rows, uint64_t count) {
  std::array<T*, kSortedRows> begins{};
  for (uint64_t row = 0; row < kSortedRows; ++row) {
    begins[row] = first + std::min(row, rows - 1) * count;
  }
  return begins;
}

using Words [[gnu::vector_size(16)]] = uint32_t;
using Pairs [[gnu::vector_size(16)]] = uint64_t;

// The bytes of four rows at 16 places, as words.
FourRegisters WordsOfRows(const int8_t* const* rows, uint64_t place) {
  return PutTogether({LoadBytes(rows[0] + place), LoadBytes(rows[1] + place),
                      LoadBytes(rows[2] + place), LoadBytes(rows[3] + place)});
}

// The bytes of eight rows at 16 places.
void JoinRows(const int8_t* const* rows, uint64_t place, uint64_t* words) {
  const FourRegisters low = WordsOfRows(rows, place);
  const FourRegisters high = WordsOfRows(rows + kSortedRows / 2, place);
  for (size_t i = 0; i < low.size(); ++i, words += 4) {
    const auto a = reinterpret_cast<Words>(low[i]);
    const auto b = reinterpret_cast<Words>(high[i]);
    const std::array both = {__builtin_shufflevector(a, b, 0, 4, 1, 5),
                             __builtin_shufflevector(a, b, 2, 6, 3, 7)};
    std::memcpy(words, both.data(), sizeof both);
  }
}

// Those of 16 words at any places: of the first four rows, and of the others. Registers are made of
// the words where they are looked up; to put these into memory first would take three times as
// long.
std::array<FourRegisters, 2> LookUp(const uint64_t* words, const uint32_t* places) {
  FourRegisters low;
  FourRegisters high;
  for (size_t i = 0; i < low.size(); ++i, places += 4) {
    const auto a = reinterpret_cast<Words>(Pairs{words[places[0]], words[places[1]]});
    const auto b = reinterpret_cast<Words>(Pairs{words[places[2]], words[places[3]]});
    low[i] = reinterpret_cast<Bytes>(__builtin_shufflevector(a, b, 0, 2, 4, 6));
    high[i] = reinterpret_cast<Bytes>(__builtin_shufflevector(a, b, 1, 3, 5, 7));
  }
  return {TakeApart(low), TakeApart(high)};
}

}  // namespace

void SortBytes(const int8_t* from, uint64_t rows, const uint32_t* places, uint64_t count,
               std::vector<uint64_t>& words, std::vector<int8_t>& sorted) {
  static_assert(kSortedRows == sizeof(uint64_t));
  words.resize(count);
  sorted.resize(rows * count);
  const uint64_t whole = count / kBytes * kBytes;
  const auto in = BeginsOf(from, rows, count);
  for (uint64_t i = 0; i < whole; i += kBytes) JoinRows(in.data(), i, &words[i]);
  for (uint64_t i = whole; i < count; ++i) {
    for (uint64_t row = kSortedRows; row-- > 0;) {
      words[i] = words[i] << 8 | static_cast<uint8_t>(in[row][i]);
    }
  }
  const auto out = BeginsOf(sorted.data(), rows, count);
  for (uint64_t i = 0; i < whole; i += kBytes) {
    const std::array<FourRegisters, 2> bytes = LookUp(words.data(), places + i);
    for (uint64_t row = 0; row < rows; ++row) {
      std::memcpy(out[row] + i, &bytes[row / 4][row % 4], kBytes);
    }
  }
  for (uint64_t i = whole; i < count; ++i) {
    for (uint64_t row = 0; row < rows; ++row) {
      out[row][i] = static_cast<int8_t>(words[places[i]] >> 8 * row);
    }
  }
}

}  // namespace prepack
