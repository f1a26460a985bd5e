#pragma once

// Which output channels of a module are multiplied with all activations.
//
// Every output channel gets the check of channel_check.h: wrong bytes show in the channels that
// they belong to. All activations, the second implementation on unpacked weights, and the product
// without any rounding meet a sample: they are about the arithmetic of the module, which is the
// same in all of its channels. The sample is a run of channels of every module that the packed one
// was made of; the name says where it lies, so it is the same on every machine. A small module is
// sampled as a whole.

#include <cstdint>
#include <vector>

#include "prepack/packed/folder.h"
#include "prepack/verify/gemm_check.h"

namespace prepack {

struct ChannelPanel {
  uint64_t n0 = 0;
  uint64_t channels = 0;

  friend bool operator==(const ChannelPanel&, const ChannelPanel&) = default;
};

// All output channels of the module, in panels of so many.
std::vector<ChannelPanel> CutChannels(const PackedModule& packed, uint64_t channels);
// The sample, of some `weights` for each member.
std::vector<ChannelPanel> SampledChannels(const PackedModule& packed, const ProductCut& cut,
                                          uint64_t weights);

}  // namespace prepack
