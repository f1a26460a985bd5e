#pragma once

// The check that every output channel gets: the model of the kernel reads the weights that the
// source holds, and multiplies the one-hot rows; see channel_truth.h.

#include <cstdint>
#include <memory>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/channel_truth.h"
#include "prepack/verify/decoded_weights.h"
#include "prepack/verify/packed_operands.h"
#include "prepack/verify/truth.h"

namespace prepack {

// Memory of one thread.
struct ChannelScratch {
  ChannelPanelTruth truth;
  std::vector<float> y;           // [hot rows, channels], what the consumer makes of the model's
  std::vector<uint32_t> digests;  // by channel
  std::vector<uint64_t> group_inputs;
  std::vector<double> found;
  std::vector<double> expected;
};

class ChannelCheck {
 public:
  // `model`: of the pinned weight, with the hot rows of the truth's inputs; `rounding`: what it
  // does to weights. The other arguments must outlive this.
  ChannelCheck(const PackedModule& packed, const PinnedBytes& weight,
               const LoadedOperands& operands, const GemmTruth& truth, WeightRounding rounding,
               std::unique_ptr<KernelModel> model);

  // Fills `scratch` for output channels [n0, n0 + channels), and adds the weights that differ.
  // `judged`: how truth.kernel rounds weights. n0 is a multiple of kModelUnit. Safe from any
  // thread. The errors are those of the second decoder.
  Status Run(WeightRounding judged, uint64_t n0, uint64_t channels, ChannelScratch& scratch,
             DecodedDifferences& differences) const;

 private:
  // Of input channel i in the order of GemmInputs::exact(): where it is in the packed module.
  uint64_t PlaceOf(uint64_t i) const { return k0_ + truth_.inputs().places()[i]; }
  bool SameScales(uint64_t n0, uint64_t channel, const ChannelScratch& scratch) const;
  void FindGroupInputs(ChannelScratch& scratch) const;
  Status CompareStrip(uint64_t n0, uint64_t channels, ChannelScratch& scratch,
                      DecodedDifferences& differences) const;

  const PackedModule& packed_;
  const PinnedBytes& weight_;
  const LoadedOperands& operands_;
  const GemmTruth& truth_;
  WeightRounding rounding_;
  bool consumer_scales_;
  std::unique_ptr<KernelModel> model_;
  ChannelTruth channels_;
  uint64_t k0_;  // the first input channel of the packed module that the inputs are of
};

}  // namespace prepack
