#ifndef PREPACK_CANONICAL_PANEL_H_
#define PREPACK_CANONICAL_PANEL_H_

// The unit of work between readers and layouts: a block of consecutive output channels by a run of
// input channels, in canonical form. Small enough for the L2 cache, so that memory is bounded by
// threads × panel, whatever the size of the model.

#include <cstddef>
#include <cstdint>
#include <span>

namespace prepack {

// Output channels [n0, n0 + rows) by input channels [k0, k0 + cols) of a module.
struct PanelRange {
  uint64_t n0 = 0;
  uint64_t rows = 0;
  uint64_t k0 = 0;
  uint64_t cols = 0;

  friend bool operator==(const PanelRange&, const PanelRange&) = default;
};

// A panel of 4-bit codes: row-major, two codes per byte, even input channel in the low half.
//
//     byte   0      1      2
//     row 0  k1|k0  k3|k2  k5|k4  …      (high half | low half)
//     row 1  starts PanelRowBytes(cols) later
//
// This is how compressed-tensors stores codes, so the most common reader copies bytes.
// k0 and cols of a panel are even.
constexpr size_t PanelRowBytes(uint64_t cols) {
  return static_cast<size_t>((cols + 1) / 2);
}
constexpr size_t PanelBytes(const PanelRange& range) {
  return static_cast<size_t>(range.rows) * PanelRowBytes(range.cols);
}

// Code of row `row` and column `col`, both counted from the start of the panel.
inline uint8_t PanelCode(std::span<const std::byte> panel, uint64_t cols, uint64_t row,
                         uint64_t col) {
  const auto byte = std::to_integer<unsigned>(panel[row * PanelRowBytes(cols) + col / 2]);
  return static_cast<uint8_t>(col % 2 == 0 ? byte & 15U : byte >> 4);
}

}  // namespace prepack

#endif  // PREPACK_CANONICAL_PANEL_H_
