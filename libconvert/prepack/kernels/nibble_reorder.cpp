#include "prepack/kernels/nibble_reorder.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "prepack/base/checked.h"

namespace prepack {
namespace {

// What is taken at a time: word rows that fill a cache line of every output row, so that the words
// of 64 channels on their way stay in an L1 cache.
constexpr size_t kPieceRows = 64;
constexpr size_t kPieceCodes = kPieceRows * kCodesPerWideWord;

}  // namespace

void NibblesOfBytes(std::span<const uint32_t> order, std::span<uint32_t> nibbles) {
  for (size_t i = 0; i < order.size(); ++i) {
    nibbles[2 * i] = 2 * order[i];
    nibbles[2 * i + 1] = 2 * order[i] + 1;
  }
}

void PickColumns(const std::byte* columns, size_t column_bytes, std::span<const uint32_t> order,
                 std::byte* out) {
  constexpr size_t kChunk = 32;  // a copy of known size is two instructions
  const size_t whole = column_bytes / kChunk * kChunk;
  for (const uint32_t k : order) {
    const std::byte* from = columns + k * column_bytes;
    for (size_t i = 0; i < whole; i += kChunk) std::memcpy(out + i, from + i, kChunk);
    if (whole < column_bytes) std::memcpy(out + whole, from + whole, column_bytes - whole);
    out += column_bytes;
  }
}

NibbleReorder::NibbleReorder(uint64_t word_rows, uint64_t channels)
    : kernels_(Kernels()),
      channels_(channels),
      padded_channels_(CeilDiv(channels, kColumnChannels) * kColumnChannels),
      columns_(word_rows * kCodesPerWideWord * ColumnBytes(padded_channels_)) {}

void NibbleReorder::Put(uint64_t first, uint64_t count, const std::byte* words, size_t row_stride) {
  const size_t column_bytes = ColumnBytes(padded_channels_);
  uint8_t* columns = columns_.data() + first * kCodesPerWideWord * column_bytes;
  if (padded_channels_ == channels_) {
    return kernels_.split_columns(words, row_stride, count, channels_, columns, column_bytes);
  }
  // Split like they will be joined, which is with the channels that fill up the last eight.
  Scratch<uint32_t> row(padded_channels_, 0);
  for (uint64_t r = 0; r < count; ++r) {
    std::memcpy(row.data(), words + r * row_stride, channels_ * sizeof(uint32_t));
    kernels_.split_columns(reinterpret_cast<const std::byte*>(row.data()), 0, 1, padded_channels_,
                           columns + r * kCodesPerWideWord * column_bytes, column_bytes);
  }
}

void NibbleReorder::Take(std::span<const uint32_t> order, std::byte* out, size_t row_bytes) const {
  Scratch<uint32_t> words(kPieceRows * padded_channels_);
  for (size_t j = 0; j < order.size(); j += kPieceCodes) {
    TakePiece(order.subspan(j, std::min(kPieceCodes, order.size() - j)), words.data(), out + j / 2,
              row_bytes);
  }
}

void NibbleReorder::TakePiece(std::span<const uint32_t> order, uint32_t* words, std::byte* out,
                              size_t row_bytes) const {
  const size_t column_bytes = ColumnBytes(padded_channels_);
  const size_t whole = order.size() / kCodesPerWideWord;
  kernels_.join_columns(columns_.data(), column_bytes, order.data(), whole, padded_channels_, words,
                        padded_channels_);
  kernels_.transpose_words(reinterpret_cast<const std::byte*>(words),
                           padded_channels_ * sizeof(uint32_t), whole, channels_, out, row_bytes);
  const std::span<const uint32_t> rest = order.subspan(whole * kCodesPerWideWord);
  if (rest.empty()) return;
  std::array<uint32_t, kCodesPerWideWord> filled;
  std::fill(std::ranges::copy(rest, filled.begin()).out, filled.end(), rest.back());
  kernels_.join_columns(columns_.data(), column_bytes, filled.data(), 1, padded_channels_, words,
                        padded_channels_);
  const size_t bytes = (rest.size() + 1) / 2;
  for (uint64_t n = 0; n < channels_; ++n) {
    std::memcpy(out + n * row_bytes + whole * sizeof(uint32_t), &words[n], bytes);
  }
}

}  // namespace prepack
