#include "prepack/verify/channel_check.h"

#include <algorithm>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/kernels/strip_products.h"
#include "prepack/verify/gemm_inputs.h"

namespace prepack {
namespace {

constexpr uint64_t kNoInput = UINT64_MAX;

}  // namespace

ChannelCheck::ChannelCheck(const PackedModule& packed, const PinnedBytes& weight,
                           const LoadedOperands& operands, const GemmTruth& truth,
                           WeightRounding rounding, std::unique_ptr<KernelModel> model)
    : packed_(packed),
      weight_(weight),
      operands_(operands),
      truth_(truth),
      rounding_(rounding),
      consumer_scales_(packed.layout().consumer_scales.Of(packed.request())),
      model_(std::move(model)),
      channels_(truth, rounding, model_->digests_integers()),
      k0_(truth.inputs().slab() ? truth.inputs().slab()->k0 : 0) {}

Status ChannelCheck::Run(WeightRounding judged, uint64_t n0, uint64_t channels,
                         ChannelScratch& scratch, DecodedDifferences& differences) const {
  PREPACK_TRY(channels_.Compute(judged, n0, channels, scratch.truth));
  scratch.y.resize(truth_.kernel_hot().size() * channels);
  scratch.digests.resize(channels);
  Status ran;
  PREPACK_TRY(weight_.Visit([&](std::span<const std::byte> /*weight*/) {
    ran = model_->RunAndDigest(n0, channels_.packed_factors(), scratch.y, scratch.digests);
  }));
  PREPACK_TRY(std::move(ran));
  operands_.Finish(n0, channels, scratch.y);

  const bool has_scales = ChannelTruth::ScalesSums(rounding_) && !consumer_scales_;
  if (has_scales) FindGroupInputs(scratch);
  for (uint64_t first = 0; first < channels; first += kStripChannels) {
    const uint64_t count = std::min<uint64_t>(kStripChannels, channels - first);
    bool same = true;
    for (uint64_t i = first; same && i < first + count; ++i) {
      same = scratch.digests[i] == scratch.truth.digests[i] &&
             (!has_scales || SameScales(n0, i, scratch));
    }
    if (!same) PREPACK_TRY(CompareStrip(n0 + first, count, scratch, differences));
  }
  return {};
}

// For each group an input channel of the packed module that is in it.
void ChannelCheck::FindGroupInputs(ChannelScratch& scratch) const {
  const ChannelPanelTruth& truth = scratch.truth;
  scratch.group_inputs.assign(truth.scales.size() / truth.digests.size(), kNoInput);
  for (const uint64_t end : truth.run_ends) {
    scratch.group_inputs[truth.group_of[end - 1]] = PlaceOf(end - 1);
  }
}

bool ChannelCheck::SameScales(uint64_t n0, uint64_t channel, const ChannelScratch& scratch) const {
  const uint64_t groups = scratch.group_inputs.size();
  for (uint64_t group = 0; group < groups; ++group) {
    const uint64_t k = scratch.group_inputs[group];
    if (k == kNoInput) continue;
    const auto expected = static_cast<double>(scratch.truth.scales[channel * groups + group]);
    if (model_->WeightFactor(n0 + channel, k) != expected) return false;
  }
  return true;
}

// Weight by weight: says where the difference is, and passes where a digest tells −0 from 0.
Status ChannelCheck::CompareStrip(uint64_t n0, uint64_t channels, ChannelScratch& scratch,
                                  DecodedDifferences& differences) const {
  const uint64_t k = packed_.request().k;
  const uint64_t inputs = truth_.inputs().k();
  DecodedRows& decoded = scratch.truth.decoded;
  decoded.takes_small = false;
  decoded.takes_codes = false;
  PREPACK_TRY(truth_.Decode(n0, channels, decoded, scratch.truth.scattered));
  if (consumer_scales_) std::ranges::fill(decoded.scales, 1.0);
  scratch.expected.resize(channels * inputs);
  FillKernelWeights(rounding_, packed_.layout(), packed_.request(), decoded,
                    std::span(scratch.expected));
  scratch.found.resize(channels * k);
  PREPACK_TRY(weight_.Visit(
      [&](std::span<const std::byte> /*weight*/) { model_->Weights(n0, scratch.found); }));
  for (uint64_t row = 0; row < channels; ++row) {
    for (uint64_t i = 0; i < inputs; ++i) {
      const double expected = scratch.expected[row * inputs + i];
      const double found = scratch.found[row * k + PlaceOf(i)];
      if (found != expected) {
        differences.Add(n0 + row, truth_.inputs().ModelInput(i), found, expected);
      }
    }
  }
  return {};
}

}  // namespace prepack
