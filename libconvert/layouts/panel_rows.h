#ifndef PREPACK_LAYOUTS_PANEL_ROWS_H_
#define PREPACK_LAYOUTS_PANEL_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "canonical/panel.h"

namespace prepack {

// A panel and its packed form fit into an L2 cache of 512 KiB with room to spare.
inline constexpr uint64_t kPanelBytes = 128ULL * 1024;

// Rows per panel of `k` codes each: a multiple of `block`, at least one block.
constexpr uint64_t PanelRowsFor(CodeType code, uint64_t k, uint64_t block) {
  const uint64_t rows = kPanelBytes / PanelRowBytes(code, k);
  return std::max(block, rows / block * block);
}

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_PANEL_ROWS_H_
