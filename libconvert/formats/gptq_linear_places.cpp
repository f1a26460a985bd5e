// GptqLinear: where a number lies.

#include <algorithm>

#include "formats/gptq_linear.h"
#include "kernels/nibble_columns.h"

namespace prepack {

namespace {

constexpr uint32_t kGptqWordBits = 8 * kWideWordBytes;

// Code `index` of a packed bit string whose words are `stride` apart, the first at word `first` of
// the tensor.
class PackedString {
 public:
  PackedString(const StoredTensor& tensor, const CodePacking& packing, uint64_t first,
               uint64_t stride)
      : tensor_(tensor), packing_(packing), first_(first), stride_(stride) {}

  StoredBits Where(uint64_t index) const {
    const bool whole = kGptqWordBits % packing_.bits == 0;  // then planes make no difference
    if (packing_.planar && !whole) return WhereInPlanes(index);
    StoredBits found;
    Add(index * packing_.bits, packing_.bits, found);
    return found;
  }

 private:
  // Planes of 8, 4, 2 and 1 bits, as the bits of the width say; the widest holds the lowest bits.
  StoredBits WhereInPlanes(uint64_t index) const {
    const uint64_t unit = index / kGptqWordBits * kGptqWordBits * packing_.bits;
    StoredBits found;
    uint32_t below = 0;
    for (const uint32_t width : {8U, 4U, 2U, 1U}) {
      if ((packing_.bits & width) == 0) continue;
      Add(unit + uint64_t{below} * kGptqWordBits + index % kGptqWordBits * width, width, found);
      below += width;
    }
    return found;
  }

  // Bits [bit, bit + bits) of the string; a run that crosses words is two.
  void Add(uint64_t bit, uint32_t bits, StoredBits& found) const {
    const auto shift = static_cast<uint32_t>(bit % kGptqWordBits);
    const uint32_t here = std::min(bits, kGptqWordBits - shift);
    const uint64_t word = first_ + bit / kGptqWordBits * stride_;
    found.push_back({.tensor = tensor_.name, .bit = word * kGptqWordBits + shift, .bits = here});
    if (here == bits) return;
    found.push_back(
        {.tensor = tensor_.name, .bit = (word + stride_) * kGptqWordBits, .bits = bits - here});
  }

  const StoredTensor& tensor_;
  CodePacking packing_;
  uint64_t first_;
  uint64_t stride_;
};

}  // namespace

StoredBits GptqLinear::WhereCode(uint64_t n, uint64_t k) const {
  return PackedString(*shape_.qweight, shape_.packing, n, n_).Where(k);
}

StoredBits GptqLinear::WhereScale(uint64_t n, uint64_t g) const {
  return WhereElement(*shape_.scales, g * n_ + n);
}

StoredBits GptqLinear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  return PackedString(*shape_.qzeros, shape_.packing, g * shape_.zero_words, 1).Where(n);
}

PanelRange GptqLinear::CodesNear(uint64_t byte) const {
  return {.n0 = byte / kWideWordBytes % n_, .rows = 1, .k0 = 0, .cols = k_};
}

}  // namespace prepack
