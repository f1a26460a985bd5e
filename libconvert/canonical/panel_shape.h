#ifndef PREPACK_CANONICAL_PANEL_SHAPE_H_
#define PREPACK_CANONICAL_PANEL_SHAPE_H_

// How large the pieces are that a module is read and packed in. Consecutive output channels with
// all of their input channels are a strip, which is packed and written as a whole; a strip is read
// panel by panel.
//
// Where a file holds all input channels of an output channel side by side, a panel is a strip.
// Where it holds all output channels of an input channel side by side, a narrow strip would pick a
// few bytes from each of many far places; such strips are wide, and cut along K.

#include <algorithm>
#include <cstdint>

#include "canonical/quantized_linear.h"

namespace prepack {

// Panel and packed form together fit into an L2 cache of 512 KiB with room to spare.
inline constexpr uint64_t kPanelBytes = 128ULL * 1024;

// Panels are cut along K at multiples of this: a multiple of what any layout asks for and of any
// format's units, so that no code has to be read twice.
inline constexpr uint64_t kPanelColsMultiple = 256;

struct PanelShape {
  uint64_t rows = 0;  // of a strip; the last one may have fewer
  uint64_t cols = 0;  // the last panel of a strip may have fewer
};

// Rows of `k` codes each that make about a panel: a multiple of `multiple`, at least that.
constexpr uint64_t PanelRowsFor(CodeType code, uint64_t k, uint64_t multiple) {
  const uint64_t rows = kPanelBytes / PanelRowBytes(code, k);
  return std::max(multiple, rows / multiple * multiple);
}

// The shape in which the module is read fastest, in strips of a multiple of `rows_multiple` rows.
inline PanelShape PanelShapeFor(const QuantizedLinear& linear, uint64_t rows_multiple) {
  const CodeType code = linear.scheme().code;
  const uint64_t narrow = PanelRowsFor(code, linear.k(), rows_multiple);
  if (narrow >= linear.wide_rows()) return {.rows = narrow, .cols = linear.k()};
  const uint64_t rows = CeilDiv(linear.wide_rows(), rows_multiple) * rows_multiple;
  const uint64_t cols = kPanelBytes / PanelRowBytes(code, rows) / kPanelColsMultiple;
  return {.rows = rows,
          .cols = std::min(linear.k(), std::max<uint64_t>(cols, 1) * kPanelColsMultiple)};
}

}  // namespace prepack

#endif  // PREPACK_CANONICAL_PANEL_SHAPE_H_
