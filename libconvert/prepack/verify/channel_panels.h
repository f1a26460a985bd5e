#ifndef PREPACK_VERIFY_CHANNEL_PANELS_H_
#define PREPACK_VERIFY_CHANNEL_PANELS_H_

// Which output channels of a module are multiplied with which activations.
//
// A few rows, all Gaussian or one-hot, meet every output channel: wrong bytes show in the channels
// that they belong to. All rows, the second implementation on unpacked weights, and the product
// without any rounding meet a sample: they are about the arithmetic of the module, which is the
// same in all of its channels. The sample is a run of channels of every module that the packed one
// was made of; the name says where it lies, so it is the same on every machine. A small module is
// sampled as a whole.

#include <cstdint>
#include <vector>

#include "prepack/packed/folder.h"
#include "prepack/verify/gemm_check.h"

namespace prepack {

// Weights that are at least in the sample of a module, if it has as many.
inline constexpr uint64_t kSampledWeights = uint64_t{1} << 18;

struct ChannelPanel {
  uint64_t n0 = 0;
  uint64_t channels = 0;
  bool sampled = false;

  friend bool operator==(const ChannelPanel&, const ChannelPanel&) = default;
};

// All output channels of the module, the sample first. `all_sampled`: every channel.
std::vector<ChannelPanel> CutChannels(const PackedModule& packed, const ProductCut& cut,
                                      bool all_sampled);

}  // namespace prepack

#endif  // PREPACK_VERIFY_CHANNEL_PANELS_H_
