// Goes through some output channels at a time, whose decoded weights stay in the L2 cache.

#include "prepack/verify/channel_truth.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "prepack/base/random.h"
#include "prepack/base/status.h"
#include "prepack/kernels/kernels.h"

namespace prepack {
namespace {

// Weights that are decoded at a time, as floats and as small steps.
constexpr uint64_t kPieceWeights = kPieceBytes / sizeof(float);
constexpr uint64_t kSmallPieceWeights = kPieceBytes;
// Codes with one scale, from which on looking all up that there can be costs less.
constexpr uint64_t kManyCodes = 1024;
// Output channels that lie side by side in a file are read by whole lines of the cache, if they are
// so many.
constexpr uint64_t kPieceLine = 64;

DigestFactors MakeFactors(uint64_t k) {
  SplitMix64 random(k);
  DigestFactors factors;
  factors.wide.reserve(k);
  factors.narrow.reserve(k);
  for (uint64_t i = 0; i < k; ++i) {
    const uint32_t number = static_cast<uint32_t>(random.Next()) | 1U;
    factors.wide.push_back(number);
    // Odd, so never −2^15, which the kernel for pairs does not take.
    factors.narrow.push_back(static_cast<int16_t>(static_cast<uint16_t>(number)));
  }
  return factors;
}

}  // namespace

ChannelTruth::ChannelTruth(const GemmTruth& truth, WeightRounding rounding, bool integers)
    : truth_(truth),
      k_(truth.inputs().k()),
      rounding_(rounding),
      integers_(integers),
      to_f16_(truth.packed().request().activation_dtype == DType::kF16),
      factors_(MakeFactors(k_)) {
  packed_factors_.wide.reserve(k_ + 1);
  packed_factors_.narrow.reserve(k_ + 1);
  for (const uint64_t k : truth.inputs().order()) {
    packed_factors_.wide.push_back(factors_.wide[k]);
    packed_factors_.narrow.push_back(factors_.narrow[k]);
  }
  packed_factors_.wide.push_back(1);
  packed_factors_.narrow.push_back(1);
  size_t hot = 0;
  for (const std::vector<HotInput>& row : truth.kernel_hot()) hot += row.size();
  hot_.reserve(hot);
  for (uint64_t row = 0; row < truth.kernel_hot().size(); ++row) {
    for (const HotInput& input : truth.kernel_hot()[row]) hot_.push_back({row, input});
  }
}

namespace {

// In registers, where there is a kernel that rounds so.
std::optional<Bf16Rounding> RoundingOfDigest(WeightRounding rounding, bool to_f16) {
  switch (rounding) {
    case WeightRounding::kNone:
    case WeightRounding::kToF32:
    case WeightRounding::kFp8:
      return Bf16Rounding::kNone;
    case WeightRounding::kToBF16:
    case WeightRounding::kFp8ToBF16:
      return Bf16Rounding::kByInstruction;
    case WeightRounding::kToActivation:
      if (!to_f16) return Bf16Rounding::kByInstruction;
      return std::nullopt;
    case WeightRounding::kDequantized:
      return Bf16Rounding::kNearest;
  }
  return std::nullopt;
}

// The steps of a channel group by group, where they are scattered.
std::span<const float> InRuns(std::span<const float> steps, std::span<const uint32_t> by_group,
                              std::vector<float>& sorted) {
  if (by_group.empty()) return steps;
  sorted.resize(steps.size());
  const float* from = steps.data();  // pointers, because nothing else is checked for each weight
  float* to = sorted.data();
  for (const uint32_t place : by_group) *to++ = from[place];
  return sorted;
}

}  // namespace

uint32_t ChannelTruth::Digest(std::span<const float> stored, std::span<const float> scales,
                              bool as_normal, ChannelPanelTruth& panel) const {
  const KernelTable& kernels = Kernels();
  if (integers_) return kernels.digest_steps(stored.data(), k_, factors_.narrow.data());
  const std::span steps = InRuns(stored, panel.by_group, panel.steps_by_group);
  const bool by_kernel = RoundingOfDigest(rounding_, to_f16_).has_value();
  const Bf16Rounding rounding = RoundingOfDigest(rounding_, to_f16_).value_or(Bf16Rounding::kNone);
  std::vector<float>& weights = panel.weights;
  uint32_t digest = 0;
  uint64_t k = 0;
  for (size_t run = 0; run < panel.run_ends.size(); ++run) {
    const uint64_t count = panel.run_ends[run] - k;
    std::span<const float> from = steps.subspan(k, count);
    float scale = ScalesSums(rounding_) ? 1.0F : scales[panel.run_groups[run]];
    weights.resize(count);
    if (!by_kernel) {
      FillKernelWeights(rounding_, to_f16_, from, scale, weights);
      from = weights;
      scale = 1;
    } else if (ReadsAsNormal(rounding_) && !as_normal) {
      ReadAllAsNormal(from, weights);
      from = weights;
    }
    // Steps are zero or from 2^-9 to 2^15, so that no product is below 2^-126, or not a number.
    const bool ordinary = rounding == Bf16Rounding::kByInstruction && std::abs(scale) > 0x1p-110F &&
                          std::abs(scale) < 0x1p100F;
    digest += kernels.digest_scaled(from.data(), count, scale,
                                    ordinary ? Bf16Rounding::kNearestOfFinite : rounding,
                                    &FactorsOf(panel).wide[k]);
    k += count;
  }
  return digest;
}

// All weights that codes of a group with this scale stand for; null: they are not of bf16, or it
// would take longer to make them than to do without.
const ByteWeights* ChannelTruth::WeightsOf(uint64_t group, float scale, uint64_t count,
                                           ChannelPanelTruth& panel) const {
  ChannelPanelTruth::CodeWeights& own = panel.code_weights[group];
  const bool pays = count >= kManyCodes || own.scale == scale;
  if (own.scale != scale) own.is_made = false;
  own.scale = scale;
  if (!own.is_made) {
    if (!pays) return nullptr;
    std::array<float, kSecondCodes> weights;
    FillKernelWeights(rounding_, to_f16_, std::span(panel.decoded.values, kSecondCodes), scale,
                      weights);
    own.are_bf16 = true;
    for (size_t code = 0; code < weights.size(); ++code) {
      const auto bits = std::bit_cast<uint32_t>(weights[code]);
      own.weights.upper[code] = static_cast<uint16_t>(bits >> 16);
      own.are_bf16 = own.are_bf16 && (bits & 0xFFFF) == 0;
    }
    own.is_made = true;
  }
  return own.are_bf16 ? &own.weights : nullptr;
}

std::optional<uint32_t> ChannelTruth::DigestBytes(std::span<const int8_t> codes,
                                                  std::span<const float> scales,
                                                  ChannelPanelTruth& panel) const {
  if (!panel.by_group.empty()) return std::nullopt;
  const auto* from = reinterpret_cast<const uint8_t*>(codes.data());
  uint32_t digest = 0;
  uint64_t k = 0;
  bool complete = true;
  for (size_t run = 0; run < panel.run_ends.size(); ++run) {
    const uint64_t count = panel.run_ends[run] - k;
    const uint64_t group = panel.run_groups[run];
    const float scale = ScalesSums(rounding_) ? 1.0F : scales[group];
    // Asked for every group, so that the next channel finds what pays by then.
    const ByteWeights* weights = WeightsOf(group, scale, count, panel);
    complete = complete && weights != nullptr;
    if (complete) digest += Kernels().digest_bytes(from + k, count, *weights, &factors_.narrow[k]);
    k += count;
  }
  return complete ? std::optional(digest) : std::nullopt;
}

// Codes are looked up, one channel at a time: there are few, so that all become what the kernel
// reads them as beforehand.
uint32_t ChannelTruth::DigestCodes(std::span<const int8_t> codes, std::span<const float> scales,
                                   ChannelPanelTruth& panel) const {
  if (const std::optional<uint32_t> digest = DigestBytes(codes, scales, panel)) return *digest;
  panel.steps_of_codes.resize(codes.size());
  const int8_t* from = codes.data();
  const float* values = panel.values.data();
  float* to = panel.steps_of_codes.data();
  for (size_t i = 0; i < codes.size(); ++i) to[i] = values[static_cast<uint8_t>(from[i])];
  return Digest(panel.steps_of_codes, scales, /*as_normal=*/true, panel);
}

uint32_t ChannelTruth::DigestOf(uint64_t channel, std::span<const float> scales,
                                ChannelPanelTruth& panel) const {
  const DecodedRows& decoded = panel.decoded;
  const uint64_t start = channel * k_;
  if (decoded.small.empty()) {
    return Digest(std::span(decoded.steps).subspan(start, k_), scales, /*as_normal=*/false, panel);
  }
  const std::span small = std::span(decoded.small).subspan(start, k_);
  if (decoded.values != nullptr) return DigestCodes(small, scales, panel);
  if (panel.by_group.empty() || integers_) return DigestSmall(small, scales, panel);
  // Where groups are scattered, some channels at a time are put in their order.
  const uint64_t among_sorted = channel % kSortedRows;
  if (among_sorted == 0) {
    const uint64_t rows = std::min(kSortedRows, decoded.rows() - channel);
    panel.words_by_group.resize(k_);
    panel.small_by_group.resize(rows * k_);
    Kernels().sort_bytes(small.data(), rows, k_, panel.by_group.data(), panel.words_by_group.data(),
                         panel.small_by_group.data());
  }
  return DigestSmall(std::span(panel.small_by_group).subspan(among_sorted * k_, k_), scales, panel);
}

namespace {

uint64_t InputsOfEach(std::span<const uint64_t> run_ends) {
  for (size_t i = 0; i < run_ends.size(); ++i) {
    if (run_ends[i] != (i + 1) * run_ends[0]) return 0;
  }
  return run_ends[0];
}

}  // namespace

// Steps of a byte take less memory, and fewer instructions.
bool ChannelTruth::TakesSmall() const {
  if (integers_) return true;
  if (ReadsAsNormal(rounding_)) return false;
  const std::optional<Bf16Rounding> rounding = RoundingOfDigest(rounding_, to_f16_);
  return rounding && *rounding != Bf16Rounding::kNone;
}

uint32_t ChannelTruth::DigestSmall(std::span<const int8_t> steps, std::span<const float> scales,
                                   ChannelPanelTruth& panel) const {
  const KernelTable& kernels = Kernels();
  if (integers_) return kernels.digest_small_steps(steps.data(), k_, factors_.narrow.data());
  const int16_t* factors = FactorsOf(panel).narrow.data();
  const Bf16Rounding rounding = RoundingOfDigest(rounding_, to_f16_).value_or(Bf16Rounding::kNone);
  panel.run_scales.clear();
  for (const uint64_t group : panel.run_groups) panel.run_scales.push_back(scales[group]);
  if (panel.run_inputs != 0) {
    return kernels.digest_small_scaled(steps.data(), panel.run_inputs, panel.run_scales.data(),
                                       panel.run_scales.size(), rounding, factors);
  }
  uint32_t digest = 0;
  uint64_t k = 0;
  for (size_t i = 0; i < panel.run_ends.size(); ++i) {
    const uint64_t end = panel.run_ends[i];
    digest += kernels.digest_small_scaled(&steps[k], end - k, &panel.run_scales[i], 1, rounding,
                                          factors + k);
    k = end;
  }
  return digest;
}

// Adds those of one channel of the piece to its outputs, which lie `width` apart.
void ChannelTruth::AddHotProducts(WeightRounding judged, uint64_t channel,
                                  std::span<const float> scales, double* y, uint64_t width,
                                  ChannelPanelTruth& panel) const {
  for (size_t i = 0; i < hot_.size(); ++i) {
    panel.hot_steps[i] = panel.decoded.Step(channel, hot_[i].input.k);
    panel.hot_scales[i] = scales[panel.hot_groups[i]];
  }
  FillKernelWeights(judged, to_f16_, panel.hot_steps, panel.hot_scales, panel.hot_weights);
  for (size_t i = 0; i < hot_.size(); ++i) {
    y[hot_[i].row * width] += hot_[i].input.value * panel.hot_weights[i];
  }
}

// A digest is a sum over the input channels, so their order does not matter: where groups are
// scattered they are taken group by group, which makes long runs.
void ChannelTruth::SortByGroup(ChannelPanelTruth& panel) const {
  std::vector<uint32_t> next(panel.decoded.groups() + 1);  // place of the next one of each group
  for (const uint64_t group : panel.group_of) ++next[group + 1];
  panel.run_ends.clear();
  panel.run_groups.clear();
  for (uint64_t group = 0; group + 1 < next.size(); ++group) {
    const bool is_empty = next[group + 1] == 0;
    next[group + 1] += next[group];
    if (is_empty) continue;
    panel.run_ends.push_back(next[group + 1]);
    panel.run_groups.push_back(group);
  }
  panel.by_group.resize(k_);
  panel.factors_by_group.wide.resize(k_);
  panel.factors_by_group.narrow.resize(k_);
  for (uint32_t k = 0; k < k_; ++k) {
    const uint32_t place = next[panel.group_of[k]]++;
    panel.by_group[place] = k;
    panel.factors_by_group.wide[place] = factors_.wide[k];
    panel.factors_by_group.narrow[place] = factors_.narrow[k];
  }
}

// What is found once for pieces, and modules, whose input channels have the same groups.
void ChannelTruth::NoteRuns(ChannelPanelTruth& panel) const {
  const uint64_t groups = panel.decoded.groups();
  if (panel.groups == groups && panel.group_of == panel.decoded.group_of) return;
  panel.groups = groups;
  panel.group_of = panel.decoded.group_of;
  panel.by_group.clear();
  panel.run_ends = RunsOf(panel.group_of);
  panel.run_groups.clear();
  for (const uint64_t end : panel.run_ends) panel.run_groups.push_back(panel.group_of[end - 1]);
  if (panel.run_ends.size() > groups) SortByGroup(panel);
  panel.run_inputs = InputsOfEach(panel.run_ends);
}

void ChannelTruth::NoteGroups(ChannelPanelTruth& panel) const {
  NoteRuns(panel);
  panel.hot_groups.clear();
  for (const Hot& hot : hot_) panel.hot_groups.push_back(panel.group_of[hot.input.k]);
  panel.hot_steps.resize(hot_.size());
  panel.hot_scales.resize(hot_.size());
  panel.hot_weights.resize(hot_.size());
}

void ChannelTruth::AddPiece(WeightRounding judged, uint64_t first, uint64_t width,
                            ChannelPanelTruth& panel) const {
  const DecodedRows& decoded = panel.decoded;
  const uint64_t groups = decoded.groups();
  if (decoded.values != nullptr) {
    if (decoded.values != panel.code_values) panel.code_weights.clear();
    panel.code_values = decoded.values;
    panel.values.assign(decoded.values, decoded.values + kSecondCodes);
    if (ReadsAsNormal(rounding_)) ReadAllAsNormal(panel.values, panel.values);
    panel.code_weights.resize(groups);
  }
  for (uint64_t channel = 0; channel < decoded.rows(); ++channel) {
    const std::span scales = std::span(panel.scales).subspan((first + channel) * groups, groups);
    panel.digests.push_back(DigestOf(channel, scales, panel));
    AddHotProducts(judged, channel, scales, &panel.kernel[first + channel], width, panel);
    // Mostly the first weight says so.
    for (uint64_t k = 0; panel.zeros && k < k_; ++k) {
      panel.zeros = decoded.Step(channel, k) == 0 ||
                    decoded.scales[channel * groups + panel.group_of[k]] == 0;
    }
  }
}

Status ChannelTruth::Compute(WeightRounding judged, uint64_t n0, uint64_t channels,
                             ChannelPanelTruth& panel) const {
  const PackedModule& packed = truth_.packed();
  panel.kernel.assign(truth_.kernel_hot().size() * channels, 0);
  panel.digests.clear();
  panel.scales.clear();
  panel.code_weights.clear();
  panel.zeros = true;
  panel.decoded.takes_small = TakesSmall();
  panel.decoded.takes_codes = !integers_;
  uint64_t count = 0;
  for (uint64_t first = 0; first < channels; first += count) {
    // All pieces of a module are decoded alike.
    const uint64_t weights = panel.decoded.small.empty() ? kPieceWeights : kSmallPieceWeights;
    const uint64_t unit = weights / k_ < kPieceLine ? kPieceUnit : kPieceLine;
    count = std::max<uint64_t>(1, weights / k_ / unit) * unit;
    count = std::min(count, channels - first);
    PREPACK_TRY(truth_.Decode(n0 + first, count, panel.decoded, panel.scattered));
    AppendStoredScales(packed.layout(), packed.request(), panel.decoded, panel.scales);
    if (first == 0 || panel.group_of != panel.decoded.group_of) {
      NoteGroups(panel);
    }
    AddPiece(judged, first, channels, panel);
  }
  for (size_t i = 0; !truth_.kernel_bias().empty() && i < panel.kernel.size(); ++i) {
    panel.kernel[i] += truth_.kernel_bias()[n0 + i % channels];
  }
  return {};
}

}  // namespace prepack
