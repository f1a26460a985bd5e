#pragma once

// What the layouts of kt-kernel share: its order of tiles, its rules, and its names of tensors.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "prepack/layouts/layout.h"

namespace prepack {

// Codes of 8 or 4 bits, in blocks of so many output channels and of 3584 input channels; the last
// ones may be smaller. A block is cut into steps of 32 output channels, and these into tiles of
// what 64 bytes of one output channel hold.
struct KtForm {
  uint64_t bits = 8;
  uint64_t block_rows = 64;

  constexpr uint64_t tile_inputs() const { return 512 / bits; }
};

inline constexpr uint64_t kKtBlockInputs = 3584;
inline constexpr uint64_t kKtStepRows = 32;
inline constexpr uint64_t kKtHalfRows = 16;      // that lie side by side
inline constexpr uint64_t kKtRowBytes = 64;      // of an output channel in a tile
inline constexpr uint64_t kKtInputsPerWord = 4;  // that lie side by side
inline constexpr uint64_t kKtWordStride = kKtHalfRows * kKtInputsPerWord;
inline constexpr uint64_t kKtHalfBytes = kKtHalfRows * kKtRowBytes;

// The byte of weight (n, k) of a module [rows, inputs].
constexpr uint64_t KtByteOf(const KtForm& form, uint64_t rows, uint64_t inputs, uint64_t n,
                            uint64_t k) {
  const uint64_t block_n = n / form.block_rows * form.block_rows;
  const uint64_t block_rows = std::min(form.block_rows, rows - block_n);
  const uint64_t block_k = k / kKtBlockInputs * kKtBlockInputs;
  const uint64_t block_inputs = std::min(kKtBlockInputs, inputs - block_k);
  const uint64_t step = (n - block_n) / kKtStepRows * kKtStepRows;
  const uint64_t tile = (k - block_k) / form.tile_inputs() * form.tile_inputs();
  const uint64_t before =
      block_n * inputs + block_k * block_rows + step * block_inputs + tile * kKtStepRows;
  return before * form.bits / 8 + n % kKtStepRows / kKtHalfRows * kKtHalfBytes +
         k % kKtRowBytes / kKtInputsPerWord * kKtWordStride + n % kKtHalfRows * kKtInputsPerWord +
         k % kKtInputsPerWord;
}

// So many output channels lie together: those of a step where there is one block of input channels,
// else those of a block, if all blocks are whole.
uint64_t KtDivisible(const KtForm& form, const PackRequest& request);

// What they take besides the codes, which `codes` judges, and the scales, which `scales` does.
Eligibility KtTakes(const KtForm& form, const PackRequest& request, const Eligibility& codes,
                    const Eligibility& scales);

// The verdict with a sentence more, if it is a no and there is one.
Eligibility WithHint(Eligibility verdict, std::string_view hint);

bool IsNamedByKt(std::string_view module);
std::string KtTensorName(std::string_view module, const PartSpec& part);

// Calls move(place in the panel, place in the tile) for every half of 16 output channels by a tile
// of input channels. The panel begins at multiples of both, and so do its ends.
template <typename Move>
void ForKtHalves(const KtForm& form, const PackJob& job, Move move) {
  const uint64_t row_bytes = job.panel.cols * form.bits / 8;
  const uint64_t first = job.panel.n0 - job.tile.n0;
  for (uint64_t row = 0; row < job.panel.rows; row += kKtHalfRows) {
    for (uint64_t col = 0; col < job.panel.cols; col += form.tile_inputs()) {
      move(row * row_bytes + col * form.bits / 8,
           KtByteOf(form, job.tile.rows, job.request.k, first + row, job.panel.k0 + col));
    }
  }
}

}  // namespace prepack
