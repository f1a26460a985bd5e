#pragma once

// What all output channels of a module are checked with, from the source, decoded by the second
// path: digests of their weights, as the kernel multiplies them, and products with the one-hot
// rows. GemmTruth (truth.h), with all rows, costs too much for all of them.
//
// The digests say that the model of the kernel reads the weights that the source holds. The rows
// reach every group of every channel, and what is added to sums beside the weights: biases, and the
// sums that 8-bit kernels take off for their zero points.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/kernels/byte_digests.h"
#include "prepack/kernels/weight_digests.h"
#include "prepack/verify/truth.h"

namespace prepack {

// Of weights that are decoded at a time, so that they stay in the L2 cache.
inline constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
// Their output channels are a multiple of this: AWQ stores eight in a word.
inline constexpr uint64_t kPieceUnit = 8;

// Memory of one thread.
struct ChannelPanelTruth {
  std::vector<double> kernel;     // [hot rows, channels], as GemmTruth's
  std::vector<uint32_t> digests;  // by channel
  // [channels, groups], as the layout stores them; groups as the decoder counts them.
  std::vector<float> scales;
  std::vector<uint64_t> group_of;  // by input channel, in the order of GemmInputs::exact()
  uint64_t groups = 0;             // that there may be
  bool zeros = true;               // every weight of the panel is zero in the source
  DecodedRows decoded;
  DecodedRows scattered;
  // Where groups are scattered: the input channels group by group, and their factors.
  std::vector<uint32_t> by_group;
  DigestFactors factors_by_group;
  std::vector<int8_t> small_by_group;  // the steps of up to kSortedRows channels
  std::vector<uint64_t> words_by_group;
  std::vector<float> steps_by_group;  // the steps of one channel
  std::vector<float> values;          // of codes, as the kernel reads them
  std::vector<float> steps_of_codes;  // in one channel
  // Of a group: the weights that its codes stand for in the channels with this scale.
  struct CodeWeights {
    float scale = 0;
    bool is_made = false;
    bool are_bf16 = false;
    ByteWeights weights;
  };
  std::vector<CodeWeights> code_weights;
  const float* code_values = nullptr;  // that they are made of
  std::vector<uint64_t> run_ends;      // of consecutive input channels with the same group
  std::vector<uint64_t> run_groups;    // which that is
  uint64_t run_inputs = 0;             // how many each run has; 0: some have other numbers
  std::vector<float> run_scales;       // in one channel
  std::vector<float> weights;          // of one run
  std::vector<uint64_t> hot_groups;    // by hot input, as hot_ has them
  // Of the hot inputs of all rows, in one channel.
  std::vector<float> hot_steps;
  std::vector<float> hot_scales;
  std::vector<double> hot_weights;
};

class ChannelTruth {
 public:
  // `rounding`: what the model of the kernel does to weights, whoever multiplies them.
  // `integers`: KernelModel::digests_integers(). The truth must outlive this.
  ChannelTruth(const GemmTruth& truth, WeightRounding rounding, bool integers);

  // Does the kernel multiply steps, and scales their sums?
  static bool ScalesSums(WeightRounding rounding) {
    return rounding == WeightRounding::kNone || rounding == WeightRounding::kFp8;
  }

  // In the order of the packed module, for KernelModel::RunAndDigest.
  const DigestFactors& packed_factors() const { return packed_factors_; }

  // Output channels [n0, n0 + channels); n0 is a multiple of 8. Products are of weights as `judged`
  // rounds them. Safe from any thread. The errors are those of the second decoder.
  Status Compute(WeightRounding judged, uint64_t n0, uint64_t channels,
                 ChannelPanelTruth& panel) const;

 private:
  // Appends the digests of decoded channels, and adds their products. `first`: of the panel.
  void AddPiece(WeightRounding judged, uint64_t first, uint64_t width,
                ChannelPanelTruth& panel) const;
  void AddHotProducts(WeightRounding judged, uint64_t channel, std::span<const float> scales,
                      double* y, uint64_t width, ChannelPanelTruth& panel) const;
  void NoteGroups(ChannelPanelTruth& panel) const;
  void NoteRuns(ChannelPanelTruth& panel) const;
  void SortByGroup(ChannelPanelTruth& panel) const;
  const DigestFactors& FactorsOf(const ChannelPanelTruth& panel) const {
    return panel.by_group.empty() ? factors_ : panel.factors_by_group;
  }
  uint32_t DigestOf(uint64_t channel, std::span<const float> scales,
                    ChannelPanelTruth& panel) const;
  // `as_normal`: steps are what the kernel reads them as already.
  uint32_t Digest(std::span<const float> steps, std::span<const float> scales, bool as_normal,
                  ChannelPanelTruth& panel) const;
  uint32_t DigestCodes(std::span<const int8_t> codes, std::span<const float> scales,
                       ChannelPanelTruth& panel) const;
  // The same from tables of weights; none where these are not of bf16, or not made yet.
  std::optional<uint32_t> DigestBytes(std::span<const int8_t> codes, std::span<const float> scales,
                                      ChannelPanelTruth& panel) const;
  const ByteWeights* WeightsOf(uint64_t group, float scale, uint64_t count,
                               ChannelPanelTruth& panel) const;
  // In the order of the runs.
  uint32_t DigestSmall(std::span<const int8_t> steps, std::span<const float> scales,
                       ChannelPanelTruth& panel) const;
  bool TakesSmall() const;

  // Of all rows that are zero but for some inputs, row by row.
  struct Hot {
    uint64_t row = 0;
    HotInput input;
  };

  const GemmTruth& truth_;
  uint64_t k_ = 0;
  std::vector<Hot> hot_;
  WeightRounding rounding_;
  bool integers_;
  bool to_f16_;
  DigestFactors factors_;         // in the order of GemmInputs::exact()
  DigestFactors packed_factors_;  // the same
};

}  // namespace prepack
