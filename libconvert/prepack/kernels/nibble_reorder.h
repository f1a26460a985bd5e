#pragma once

// Brings the 4-bit codes of some output channels into another order of input channels: they are put
// in as words in any order, and taken out as rows of a panel.

#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/base/memory.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_columns.h"

namespace prepack {

// An order of bytes as one of nibbles: each moves as its two halves,
// which makes two `nibbles` of it.
void NibblesOfBytes(std::span<const uint32_t> order, std::span<uint32_t> nibbles);

// Copies columns order[0], order[1], … of `column_bytes` each, which lie back to back.
void PickColumns(const std::byte* columns, size_t column_bytes, std::span<const uint32_t> order,
                 std::byte* out);

class NibbleReorder {
 public:
  // For 8 · `word_rows` input channels of `channels` output channels.
  NibbleReorder(uint64_t word_rows, uint64_t channels);

  // Word rows [first, first + count), as in nibble_columns.h, `row_stride` bytes apart.
  void Put(uint64_t first, uint64_t count, const std::byte* words, size_t row_stride);
  // Writes the codes of input channels order[0], order[1], … of every output channel, two per byte;
  // rows are `row_bytes` apart. The last half byte of an odd number of codes is not specified.
  void Take(std::span<const uint32_t> order, std::byte* out, size_t row_bytes) const;

 private:
  void TakePiece(std::span<const uint32_t> order, uint32_t* words, std::byte* out,
                 size_t row_bytes) const;

  // Of one instruction set, which alone knows where channels lie in its columns.
  const KernelTable& kernels_;
  uint64_t channels_;
  uint64_t padded_channels_;  // to a multiple of eight
  Scratch<uint8_t> columns_;
};

}  // namespace prepack
