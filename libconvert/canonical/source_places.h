#ifndef PREPACK_CANONICAL_SOURCE_PLACES_H_
#define PREPACK_CANONICAL_SOURCE_PLACES_H_

// Where the numbers of a quantized module lie in its source: the addresses that a reader goes by,
// as closed forms. For people who look at bytes; readers move many codes at a time, and tests hold
// the two against each other.
//
// Bit i of byte b of a tensor is its bit 8·b + i. Output channels are called n, groups g. Input
// channels k are in the order of the checkpoint, whatever the module's k_order is.

#include <cstdint>
#include <string_view>

#include "base/fixed_vector.h"
#include "canonical/panel.h"

namespace prepack {

struct BitRun {
  std::string_view tensor;
  uint64_t bit = 0;   // the first, from the start of the tensor
  uint32_t bits = 0;  // how many follow each other

  friend bool operator==(const BitRun&, const BitRun&) = default;
};

// The bits of one number, the lowest first. Several runs where it crosses words that do not follow
// each other, or is stored in bit planes.
using StoredBits = FixedVector<BitRun, 3>;

class SourcePlaces {
 public:
  virtual ~SourcePlaces() = default;

  virtual StoredBits WhereCode(uint64_t n, uint64_t k) const = 0;
  virtual StoredBits WhereScale(uint64_t n, uint64_t g) const = 0;
  // No bits where no zero point is stored. Where a product with it is, the place of that.
  virtual StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const = 0;
  // Which codes to look at for those that lie in a byte of the tensor of codes: at least all of
  // those; none for a byte that belongs to another module.
  virtual PanelRange CodesNear(uint64_t byte) const = 0;
};

}  // namespace prepack

#endif  // PREPACK_CANONICAL_SOURCE_PLACES_H_
