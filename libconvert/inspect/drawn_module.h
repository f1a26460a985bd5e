#ifndef PREPACK_INSPECT_DRAWN_MODULE_H_
#define PREPACK_INSPECT_DRAWN_MODULE_H_

// The first bytes of a module's codes as a grid: which weight each nibble or byte is.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/opened_folder.h"
#include "layouts/drawing.h"

namespace prepack {

struct DrawnModule {
  std::string path;
  std::string form;    // the format, or the layout
  std::string module;  // there; a fused one of a packed folder
  std::string tensor;
  uint64_t first = 0;  // byte of the tensor that the drawing begins at: above 0 for stacked experts
  // Bits of a cell. Codes that do not fill bytes (3, 5, 6 or 7 bits) are drawn byte by byte, each
  // as the first weight that begins in it.
  uint32_t cell_bits = 4;
  std::vector<WeightCell> cells;  // input channels are in the order of the checkpoint
};

// At most `bytes` bytes of them.
Result<DrawnModule> DrawModule(const OpenedFolder& folder, std::string_view module, uint64_t bytes);

}  // namespace prepack

#endif  // PREPACK_INSPECT_DRAWN_MODULE_H_
