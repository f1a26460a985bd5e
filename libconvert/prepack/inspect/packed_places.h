#ifndef PREPACK_INSPECT_PACKED_PLACES_H_
#define PREPACK_INSPECT_PACKED_PLACES_H_

// Where the numbers of a packed module lie in its parts, and which numbers a byte holds, found with
// the functions of the layout alone: codes by its closed form; scales and zero points, which have
// none, by packing strips that differ in known places and comparing the bytes.

#include <cstdint>
#include <optional>
#include <vector>

#include "prepack/layouts/drawing.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// Bits of a part: bit i of byte b is its bit 8·b + i.
struct PartBits {
  uint64_t bit = 0;
  uint32_t bits = 0;

  friend bool operator==(const PartBits&, const PartBits&) = default;
};

// A scale or zero point.
struct GroupPlace {
  uint64_t n = 0;
  uint64_t g = 0;

  friend bool operator==(const GroupPlace&, const GroupPlace&) = default;
};

// What is in a byte of the weight part.
struct WeightByte {
  std::vector<WeightPlace> weights;  // the lowest bits first
  // When there are none: the channel whose codes are summed up there; nothing: padding.
  std::optional<uint64_t> sum_of;
};

// The weight (n, j), j counted as the kernel does: after input_order where there is one.
PartBits WherePackedCode(const Layout& layout, const PackRequest& request, uint64_t n, uint64_t j);
// Which weights to look at for those that lie in a byte of the weight part: at least all of those,
// counted as the kernel does.
PanelRange PackedCodesNear(const Layout& layout, const PackRequest& request, uint64_t byte);
WeightByte WeightsAt(const Layout& layout, const PackRequest& request, uint64_t byte);

// `role` is kScale or kZeroPoint, a part of the module. Where values of several channels are stored
// once, the place of that one. No bits: the layout does not keep the value.
PartBits WherePackedValue(const Layout& layout, const PackRequest& request, PartRole role,
                          const GroupPlace& place);
// The values that a byte of the part holds bits of, the first of those that share it; none:
// padding.
std::vector<GroupPlace> ValuesAt(const Layout& layout, const PackRequest& request, PartRole role,
                                 uint64_t byte);

}  // namespace prepack

#endif  // PREPACK_INSPECT_PACKED_PLACES_H_
