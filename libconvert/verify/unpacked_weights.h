#ifndef PREPACK_VERIFY_UNPACKED_WEIGHTS_H_
#define PREPACK_VERIFY_UNPACKED_WEIGHTS_H_

// The weights of a packed module by unpacking, where the model of its kernel walks the packed
// bytes by itself: what a second engine multiplies.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/page_buffer.h"
#include "base/result.h"
#include "verify/kernel_weights.h"
#include "verify/packed_folder.h"

namespace prepack {

// Memory of one thread.
struct UnpackBuffers {
  PageBuffer packed;
  PageBuffer codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  DecodedRows decoded;
  std::vector<float> weights;  // [channels, inputs], in packed order
};

// Fills buffers.weights with output channels [n0, n0 + channels) of the slab's input channels,
// rounded as the kernel does. n0 is a multiple of the layout's cut().rows and strip_rows, and the
// slab begins at one of cut().cols, and of the groups.
Status UnpackWeights(const PackedModule& packed, WeightRounding rounding, const InputSlab& slab,
                     uint64_t n0, uint64_t channels, UnpackBuffers& buffers);

}  // namespace prepack

#endif  // PREPACK_VERIFY_UNPACKED_WEIGHTS_H_
