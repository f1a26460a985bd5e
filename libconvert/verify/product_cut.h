#ifndef PREPACK_VERIFY_PRODUCT_CUT_H_
#define PREPACK_VERIFY_PRODUCT_CUT_H_

// How the multiplication of a packed module is cut, so that the memory it takes is bounded whatever
// the shape of the module: panels of output channels, and, where there are very many input
// channels, slabs of them. By the shape and the layout alone, so that figures depend on nothing
// else.

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "gemm/kernel_model.h"
#include "verify/packed_folder.h"

namespace prepack {

// Up to so many input channels are multiplied at once. The widest layers of published models have
// fewer, or little more.
inline constexpr uint64_t kMostWholeInputs = uint64_t{1} << 16;

// Outputs of a primitive, of all activations together, that are kept at a time.
inline constexpr uint64_t kMaxOutputs = uint64_t{1} << 26;
// Activations of a slab that a primitive is given at once, zeros everywhere else among them.
inline constexpr uint64_t kPaddedInputs = uint64_t{1} << 22;
// Rows that the second implementation multiplies unpacked weights with, or a slab of the packed
// ones: weights are what it is asked about, and few rows tell.
inline constexpr uint64_t kSecondRows = 8;

// Does oneDNN multiply the packed memory itself?
bool IsOneDnnLayout(const Layout& layout);

struct ProductCut {
  uint64_t k = 0;
  uint64_t slab_inputs = 0;  // of a slab; K: all of them at once
  uint64_t channels = 0;     // output channels of a panel; the last one may have fewer

  uint64_t slabs() const;
  // None: all input channels at once.
  std::optional<InputSlab> Slab(uint64_t index) const;
};

// kUnsupported when there are too many input channels to multiply them at once, and the groups can
// be cut nowhere.
Result<ProductCut> CutProducts(const PackedModule& packed);

}  // namespace prepack

#endif  // PREPACK_VERIFY_PRODUCT_CUT_H_
