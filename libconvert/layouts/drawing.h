#ifndef PREPACK_LAYOUTS_DRAWING_H_
#define PREPACK_LAYOUTS_DRAWING_H_

// Drawings of packed weights for people, made from the closed form of the layout (weight_bit), so
// that they cannot say anything else than the bytes do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layouts/layout.h"

namespace prepack {

struct WeightPlace {
  uint64_t n = 0;
  uint64_t k = 0;

  friend bool operator==(const WeightPlace&, const WeightPlace&) = default;
};

// A nibble, byte or 16-bit element of the weight part: which weight it is, or none, where the
// layout keeps sums or padding.
using WeightCell = std::optional<WeightPlace>;

// Bits of a cell: as many as a code has.
uint32_t WeightCellBits(const PackRequest& request);

// The cells of bytes [first, first + bytes) of the weight part, low nibble first; both are
// multiples of a cell's bytes. Looks at every weight of the module.
std::vector<WeightCell> WeightCells(const Layout& layout, const PackRequest& request,
                                    uint64_t first, uint64_t bytes);

// The first bytes of the weight, and every place where the pattern goes on in a way that the bytes
// before do not show: the next unit, the next block, sums. A row begins with its offset in bytes:
//
//     byte 0  n0k0 n1k0  n2k0 n3k0  …
//     byte 8  n0k1 n1k1  n2k1 n3k1  …
//
// "·" stands for a cell that is no weight. Every line ends with a newline.
std::string DrawWeight(const Layout& layout, const PackRequest& request);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_DRAWING_H_
