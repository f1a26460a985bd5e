// Columns of nibbles, and codes brought into another order through them.

#include <array>
#include <vector>

#include "catch.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_reorder.h"

namespace prepack::testing {
namespace {

constexpr uint32_t kPoison = 0xA5A5A5A5;

std::vector<uint32_t> RandomWords(size_t count, SplitMix64& random) {
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random.Next());
  return words;
}

const std::byte* Bytes(const std::vector<uint32_t>& words) {
  return reinterpret_cast<const std::byte*>(words.data());
}

std::vector<uint32_t> RandomPicks(size_t count, size_t below, SplitMix64& random) {
  std::vector<uint32_t> picks(count);
  for (uint32_t& pick : picks) pick = static_cast<uint32_t>(random.Below(below));
  return picks;
}

// Code of channel n at input channel k in words [., stride].
unsigned WordCode(const std::vector<uint32_t>& words, size_t stride, size_t n, size_t k) {
  return words[k / 8 * stride + n] >> (4 * (k % 8)) & 15U;
}

TEST_CASE("joining split columns picks input channels, on every instruction set") {
  SplitMix64 random(21);
  for (const Isa isa : SupportedIsas()) {
    const KernelTable& kernels = KernelsFor(isa);
    for (const size_t channels : {size_t{8}, size_t{64}, size_t{72}, size_t{200}}) {
      for (const size_t rows : {size_t{1}, size_t{5}}) {
        CAPTURE(IsaName(isa), channels, rows);
        const size_t stride = channels + 3;
        const std::vector<uint32_t> words = RandomWords(rows * stride, random);
        const size_t column_stride = ColumnBytes(channels) + 5;
        std::vector<uint8_t> columns(8 * rows * column_stride, 0xA5);
        kernels.split_columns(Bytes(words), 4 * stride, rows, channels, columns.data(),
                              column_stride);
        for (size_t k = 0; k < 8 * rows; ++k) {
          CHECK(columns[(k + 1) * column_stride - 1] == 0xA5);  // behind a column
        }
        const std::vector<uint32_t> picks = RandomPicks(24, 8 * rows, random);
        std::vector<uint32_t> joined(3 * stride, kPoison);
        kernels.join_columns(columns.data(), column_stride, picks.data(), picks.size() / 8,
                             channels, joined.data(), stride);
        for (size_t j = 0; j < picks.size(); ++j) {
          for (size_t n = 0; n < channels; ++n) {
            REQUIRE(WordCode(joined, stride, n, j) == WordCode(words, stride, n, picks[j]));
          }
          CHECK(joined[j / 8 * stride + channels] == kPoison);
        }
      }
    }
  }
}

TEST_CASE("columns that are split in order have two neighbouring channels per byte") {
  SplitMix64 random(24);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t channels : {size_t{8}, size_t{64}, size_t{72}, size_t{200}}) {
      CAPTURE(IsaName(isa), channels);
      constexpr size_t kRows = 5;
      const size_t stride = channels + 3;
      const std::vector<uint32_t> words = RandomWords(kRows * stride, random);
      const size_t column_stride = ColumnBytes(channels) + 5;
      std::vector<uint8_t> columns(8 * kRows * column_stride, 0xA5);
      KernelsFor(isa).split_ordered_columns(Bytes(words), 4 * stride, kRows, channels,
                                            columns.data(), column_stride);
      for (size_t k = 0; k < 8 * kRows; ++k) {
        for (size_t n = 0; n < channels; ++n) {
          const unsigned code = columns[k * column_stride + n / 2] >> (4 * (n % 2)) & 15U;
          REQUIRE(code == WordCode(words, stride, n, k));
        }
        CHECK(columns[(k + 1) * column_stride - 1] == 0xA5);  // behind a column
      }
    }
  }
}

TEST_CASE("every instruction set joins columns of AWQ as its order of nibbles says") {
  SplitMix64 random(22);
  constexpr std::array<size_t, 8> kNibble = {0, 4, 1, 5, 2, 6, 3, 7};
  for (const Isa isa : SupportedIsas()) {
    for (const size_t channels : {size_t{8}, size_t{64}, size_t{136}}) {
      CAPTURE(IsaName(isa), channels);
      constexpr size_t kRows = 3;
      const size_t stride = channels / 8 + 1;  // words from column to column
      const std::vector<uint32_t> columns = RandomWords(8 * kRows * stride, random);
      std::vector<uint32_t> words(kRows * (channels + 1), kPoison);
      KernelsFor(isa).join_awq_columns(reinterpret_cast<const uint8_t*>(columns.data()), 4 * stride,
                                       kRows, channels, words.data(), channels + 1);
      for (size_t k = 0; k < 8 * kRows; ++k) {
        for (size_t n = 0; n < channels; ++n) {
          const uint32_t word = columns[k * stride + n / 8];
          REQUIRE(WordCode(words, channels + 1, n, k) == (word >> 4 * kNibble[n % 8] & 15U));
        }
        CHECK(words[k / 8 * (channels + 1) + channels] == kPoison);
      }
    }
  }
}

TEST_CASE("nibbles are taken in the order that is asked for") {
  SplitMix64 random(23);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t channels : {size_t{1}, size_t{13}, size_t{59}, size_t{64}, size_t{77}}) {
      for (const size_t count : {size_t{1}, size_t{7}, size_t{301}, size_t{1100}}) {
        CAPTURE(IsaName(isa), channels, count);
        constexpr size_t kWordRows = 20;
        const ScopedIsa scope(isa);
        const std::vector<uint32_t> words = RandomWords(kWordRows * channels, random);
        NibbleReorder reorder(kWordRows, channels);
        reorder.Put(0, 3, Bytes(words), 4 * channels);
        reorder.Put(3, kWordRows - 3, Bytes(words) + 12 * channels, 4 * channels);
        const std::vector<uint32_t> order = RandomPicks(count, 8 * kWordRows, random);
        const size_t row_bytes = (count + 1) / 2 + 1;
        std::vector<std::byte> out(channels * row_bytes, std::byte{0xA5});
        reorder.Take(order, out.data(), row_bytes);
        for (size_t n = 0; n < channels; ++n) {
          for (size_t j = 0; j < count; ++j) {
            const auto byte = std::to_integer<unsigned>(out[n * row_bytes + j / 2]);
            REQUIRE((byte >> (j % 2 * 4) & 15U) == WordCode(words, channels, n, order[j]));
          }
          REQUIRE(out[(n + 1) * row_bytes - 1] == std::byte{0xA5});
        }
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
