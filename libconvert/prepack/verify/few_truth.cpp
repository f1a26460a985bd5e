// Goes through some output channels at a time, whose decoded weights stay in the L2 cache, and
// through those block by block of input channels, whose activations stay in the L1 cache.

#include "prepack/verify/few_truth.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/kernels/kernels.h"

namespace prepack {
namespace {

// Weights that are decoded at a time: a quarter of a MiB.
constexpr uint64_t kPieceWeights = uint64_t{1} << 16;
// Channels of a piece are a multiple of this: AWQ stores eight in a word.
constexpr uint64_t kPieceUnit = 8;
// Input channels of a block.
constexpr uint64_t kBlockInputs = 2 * kShortSum * kProductLanes;
// Of a cache line.
constexpr uint64_t kLineFloats = 16;

// Steps of one group as operands: what Operand in truth.cpp computes one by one, in f32.
void FillRun(WeightRounding rounding, bool to_f16, std::span<const float> steps, float scale,
             std::span<float> weights) {
  const KernelTable& kernels = Kernels();
  const float* from = steps.data();
  const bool fp8 = rounding == WeightRounding::kFp8 || rounding == WeightRounding::kFp8ToBF16;
  if (fp8) {
    std::ranges::transform(steps, weights.begin(), ReadAsNormal);
    from = weights.data();
  }
  const bool to_bf16 = rounding == WeightRounding::kToBF16 ||
                       rounding == WeightRounding::kFp8ToBF16 ||
                       (rounding == WeightRounding::kToActivation && !to_f16);
  kernels.scale_steps(from, steps.size(), scale, to_bf16, weights.data());
  if (rounding == WeightRounding::kToActivation && to_f16) {
    for (float& weight : weights) weight = RoundTo(DType::kF16, weight);
  } else if (rounding == WeightRounding::kDequantized) {
    for (float& weight : weights) weight = RoundTo(DType::kBF16, weight);
  }
}

}  // namespace

FewTruth::FewTruth(const GemmTruth& truth, std::span<const uint64_t> rows)
    : truth_(truth),
      k_(truth.inputs_.k()),
      dense_rows_(rows.size()),
      hot_rows_(truth.kernel_hot_.size()) {
  // A line longer than a multiple of a page: the lines of a block lie in different sets of the
  // cache.
  stride_ = CeilDiv(k_, kLineFloats) * kLineFloats + kLineFloats;
  dense_.resize(rows.size() * stride_);
  for (uint64_t i = 0; i < rows.size(); ++i) {
    const std::span line = std::span(truth.kernel_dense_).subspan(rows[i] * k_, k_);
    std::ranges::transform(line, dense_.begin() + static_cast<std::ptrdiff_t>(i * stride_),
                           [](double x) { return static_cast<float>(x); });
  }
  for (uint64_t row = 0; row < hot_rows_; ++row) {
    for (const HotInput& hot : truth.kernel_hot_[row]) {
      hot_.push_back({.k = hot.k, .row = row, .value = hot.value});
    }
  }
  std::ranges::stable_sort(hot_, {}, &Entry::k);
}

void FewTruth::FillWeights(WeightRounding rounding, const FewPanel& panel, uint64_t channel,
                           uint64_t begin, uint64_t end, std::span<float> weights) const {
  const DecodedRows& decoded = panel.decoded;
  const bool to_f16 = truth_.packed_.request().activation_dtype == DType::kF16;
  const std::span steps = std::span(decoded.steps).subspan(channel * k_, k_);
  const std::span scales = std::span(panel.scales).subspan(channel * decoded.groups());
  auto run = std::ranges::upper_bound(panel.run_ends, begin);
  for (uint64_t k = begin; k < end; ++run) {
    const uint64_t last = std::min(end, *run);
    FillRun(rounding, to_f16, steps.subspan(k, last - k), scales[decoded.group_of[k]],
            weights.subspan(k - begin, last - k));
    k = last;
  }
}

namespace {

// Mostly those of the piece before.
void FindRuns(FewPanel& panel) {
  const std::vector<uint64_t>& group_of = panel.decoded.group_of;
  if (panel.runs_of == group_of) return;
  panel.runs_of = group_of;
  panel.run_ends.clear();
  for (uint64_t k = 1; k <= group_of.size(); ++k) {
    if (k == group_of.size() || group_of[k] != group_of[k - 1]) panel.run_ends.push_back(k);
  }
}

}  // namespace

// The products of a decoded piece, whose first channel is channel `first` of the panel.
void FewTruth::MultiplyPiece(WeightRounding rounding, uint64_t first, uint64_t channels,
                             FewPanel& panel) const {
  const KernelTable& kernels = Kernels();
  const uint64_t width = panel.kernel.size() / (dense_rows_ + hot_rows_);  // of the panel
  std::vector<const float*> rows(dense_rows_);
  panel.sums.assign(channels * dense_rows_ * kProductLanes, 0);
  panel.weights.resize(kBlockInputs);
  auto hot = hot_.begin();
  for (uint64_t begin = 0; begin < k_; begin += kBlockInputs) {
    const uint64_t end = std::min(k_, begin + kBlockInputs);
    for (uint64_t row = 0; row < dense_rows_; ++row) rows[row] = &dense_[row * stride_ + begin];
    const auto next =
        std::find_if(hot, hot_.end(), [&](const Entry& entry) { return entry.k >= end; });
    for (uint64_t channel = 0; channel < channels; ++channel) {
      const std::span weights = std::span(panel.weights).first(end - begin);
      FillWeights(rounding, panel, channel, begin, end, weights);
      kernels.add_row_products(weights.data(), weights.size(), rows.data(), dense_rows_,
                               &panel.sums[channel * dense_rows_ * kProductLanes]);
      double* y = &panel.kernel[dense_rows_ * width + first + channel];
      for (auto entry = hot; entry != next; ++entry) {
        y[entry->row * width] += static_cast<double>(weights[entry->k - begin]) * entry->value;
      }
    }
    hot = next;
  }
  for (uint64_t channel = 0; channel < channels; ++channel) {
    for (uint64_t row = 0; row < dense_rows_; ++row) {
      const double* lanes = &panel.sums[(channel * dense_rows_ + row) * kProductLanes];
      panel.kernel[row * width + first + channel] =
          std::accumulate(lanes, lanes + kProductLanes, 0.0);
    }
  }
}

Status FewTruth::Compute(WeightRounding rounding, uint64_t n0, uint64_t channels,
                         FewPanel& panel) const {
  const PackRequest& request = truth_.packed_.request();
  const DType scale_dtype = truth_.packed_.layout().scales.value.Of(request);
  const uint64_t most = std::max<uint64_t>(1, kPieceWeights / k_ / kPieceUnit) * kPieceUnit;
  panel.kernel.assign((dense_rows_ + hot_rows_) * channels, 0);
  panel.zeros = true;
  for (uint64_t first = 0; first < channels; first += most) {
    const uint64_t count = std::min(most, channels - first);
    PREPACK_TRY(truth_.Decode(n0 + first, count, panel.decoded, panel.scattered));
    const DecodedRows& decoded = panel.decoded;
    panel.scales.resize(decoded.scales.size());
    std::ranges::transform(decoded.scales, panel.scales.begin(), [&](double scale) {
      return RoundTo(scale_dtype, static_cast<float>(scale));
    });
    FindRuns(panel);
    // Mostly the first weight says so.
    for (uint64_t i = 0; panel.zeros && i < decoded.steps.size(); ++i) {
      const double scale = decoded.scales[i / k_ * decoded.groups() + decoded.group_of[i % k_]];
      panel.zeros = static_cast<double>(decoded.steps[i]) * scale == 0;
    }
    MultiplyPiece(rounding, first, count, panel);
  }
  for (size_t i = 0; !truth_.kernel_bias_.empty() && i < panel.kernel.size(); ++i) {
    panel.kernel[i] += truth_.kernel_bias_[n0 + i % channels];
  }
  return {};
}

}  // namespace prepack
