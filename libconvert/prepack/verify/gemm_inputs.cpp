// Random activations must be the same on every machine and with every standard library, or reports
// could not be compared. So they come from our own generator (SplitMix64).

#include "prepack/verify/gemm_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

constexpr uint64_t kOutlierEvery = 256;  // channels
constexpr double kOutlierFactor = 20;

// `seed`: the number of input channels, for activations that modules share.
uint64_t SeedOfShared(uint64_t seed) {
  return SeedOfName("activations") + seed;
}

// With a static scale each module has activations of its own, as it has a range of its own, and so
// has each expert.
uint64_t SeedOf(const PackedModule& module) {
  if (module.request().scheme.activations.dynamic) return SeedOfShared(module.request().k);
  return SeedOfName(module.name()) + module.expert().value_or(0) * 0x9E3779B97F4A7C15ULL;
}

// 8-bit values reach four deviations: the range that the checkpoint saw, and what is cut off beyond
// it is not more than what rounding changes.
Distribution DistributionOf(const DecodedInput& input) {
  return {.mean = (-0.5 - input.zero_point) * input.scale, .deviation = 127.5 / 4 * input.scale};
}

// The range of the module's activations in the checkpoint.
Result<Distribution> FindDistribution(const PackedModule& packed, const SecondDecoder& source) {
  if (packed.request().scheme.activations.dynamic) return Distribution{};
  PREPACK_TRY_ASSIGN(const DecodedInput input, ReadSourceInput(source, packed));
  return DistributionOf(input);
}

// Mean 0, variance 1: the sum of twelve uniforms of 16 bits, four of each word. As
// SplitMix64::Gaussian, for a quarter of the time.
double GaussianOf16Bits(SplitMix64& random) {
  constexpr uint64_t kSixteen = 0xFFFF;
  constexpr uint64_t kPairs = 0x0000FFFF0000FFFF;
  uint64_t pairs = 0;  // two sums of 32 bits
  for (int i = 0; i < 3; ++i) {
    const uint64_t word = random.Next();
    pairs += (word & kPairs) + (word >> 16 & kPairs);
  }
  const auto sum = static_cast<int64_t>((pairs >> 32) + (pairs & 0xFFFFFFFF));
  return static_cast<double>(sum - static_cast<int64_t>(6 * kSixteen)) * 0x1p-16;
}

// Far from zero on the side where there is more room: a zero point may lie anywhere.
double HotValue(const Distribution& distribution) {
  const double above = distribution.mean + 2 * distribution.deviation;
  const double below = distribution.mean - 2 * distribution.deviation;
  return std::abs(above) >= std::abs(below) ? above : below;
}

// One channel of each group that the row reaches.
std::vector<HotInput> HotRow(uint64_t row, uint64_t groups, uint64_t k, double value,
                             SplitMix64& random) {
  std::vector<HotInput> hot;
  for (uint64_t group = row; group < groups; group += kMaxHotRows) {
    const uint64_t begin = group * k / groups;
    const uint64_t end = (group + 1) * k / groups;
    hot.push_back({.k = begin + random.Below(end - begin), .value = value});
  }
  return hot;
}

}  // namespace

DrawnRows::DrawnRows(const Distribution& distribution, uint64_t k, const SplitMix64& seeded)
    : random(seeded), rows((kGaussianRows + kOutlierRows) * k) {
  std::ranges::generate(
      rows, [&] { return distribution.mean + distribution.deviation * GaussianOf16Bits(random); });
  const std::span outliers = std::span(rows).subspan(kGaussianRows * k);
  for (uint64_t i = random.Below(std::min(kOutlierEvery, k)); i < k; i += kOutlierEvery) {
    for (uint64_t row = 0; row < kOutlierRows; ++row) outliers[row * k + i] *= kOutlierFactor;
  }
}

uint64_t BytesOfInputs(uint64_t k, bool recorded) {
  const uint64_t dense = kGaussianRows + kOutlierRows + (recorded ? kMaxRecordedRows : 0);
  constexpr uint64_t kBytesOfDense = 2 * sizeof(double);     // before and after rounding
  constexpr uint64_t kBytesOfColumn = 3 * sizeof(uint64_t);  // order, places and channels
  return k * (dense * kBytesOfDense + (dense + kMaxHotRows) * sizeof(float) + kBytesOfColumn);
}

Result<GemmInputs> GemmInputs::Make(const PackedModule& packed, const SecondDecoder& source,
                                    DType dtype, const Checkpoint* recorded,
                                    const std::optional<InputSlab>& slab,
                                    std::shared_ptr<const DrawnRows> drawn) {
  GemmInputs inputs;
  inputs.slab_ = slab;
  inputs.k_ = slab ? slab->inputs : packed.request().k;
  Status status = inputs.ReadOrder(packed);
  if (!status.ok()) return status;
  PREPACK_TRY_ASSIGN(const Distribution distribution, FindDistribution(packed, source));

  if (!drawn) {
    const SplitMix64 seeded(SeedOf(packed) + (slab ? slab->k0 : 0));
    drawn = std::make_shared<const DrawnRows>(distribution, inputs.k_, seeded);
  }
  SplitMix64 random = drawn->random;
  inputs.TakeDense(std::move(drawn));
  if (recorded != nullptr) status = inputs.AddRecorded(packed, *recorded);
  if (!status.ok()) return status;
  const uint64_t groups =
      slab ? CeilDiv(slab->inputs, packed.request().scheme.group_size) : packed.request().groups();
  inputs.DrawHot(distribution, groups, random);
  inputs.Give(dtype);
  return inputs;
}

GemmInputs GemmInputs::MakePlain(uint64_t k, uint64_t groups, uint64_t seed) {
  GemmInputs inputs;
  inputs.k_ = k;
  inputs.order_.resize(k);
  std::iota(inputs.order_.begin(), inputs.order_.end(), 0);
  auto drawn = std::make_shared<const DrawnRows>(Distribution{}, k, SplitMix64(SeedOfShared(seed)));
  SplitMix64 random = drawn->random;
  inputs.TakeDense(std::move(drawn));
  inputs.DrawHot(Distribution{}, groups, random);
  inputs.Give(DType::kF32);
  return inputs;
}

DrawnRows GemmInputs::DrawFor(uint64_t k) {
  return {Distribution{}, k, SplitMix64(SeedOfShared(k))};
}

void GemmInputs::TakeDense(std::shared_ptr<const DrawnRows> drawn) {
  drawn_ = std::move(drawn);
  dense_rows_ = kGaussianRows + kOutlierRows;
  batches_ = {{"gaussian", 0, 1},
              {"gaussian", 0, 8},
              {"gaussian", 0, kGaussianRows},
              {"outliers", kGaussianRows, kOutlierRows}};
}

// Behind all dense rows.
void GemmInputs::DrawHot(const Distribution& distribution, uint64_t groups, SplitMix64& random) {
  const uint64_t reached = std::min(k_, std::max(groups, kMaxHotRows));
  const double value = HotValue(distribution);
  for (uint64_t row = 0; row < std::min(reached, kMaxHotRows); ++row) {
    hot_.push_back(HotRow(row, reached, k_, value, random));
  }
  batches_.push_back({"one-hot", dense_rows_, hot_.size()});
}

void GemmInputs::Give(DType dtype) {
  given_.resize(rows() * columns());
  for (uint64_t row = 0; row < dense_rows_; ++row) {
    const double* from = &exact()[row * k_];
    std::ranges::transform(order_, given_.begin() + static_cast<std::ptrdiff_t>(row * columns()),
                           [=](uint64_t k) { return RoundTo(dtype, static_cast<float>(from[k])); });
  }
  places_.resize(k_);
  for (uint64_t j = 0; j < k_; ++j) places_[order_[j]] = j;
  for (uint64_t row = 0; row < hot_.size(); ++row) {
    for (const HotInput& hot : hot_[row]) {
      given_[(dense_rows_ + row) * columns() + places_[hot.k]] =
          RoundTo(dtype, static_cast<float>(hot.value));
    }
  }
}

// By the name of the module or of any of its members: all of them read the same inputs.
const StoredTensor* FindRecorded(const Checkpoint& recorded, const PackedModule& packed) {
  const StoredTensor* tensor = recorded.Find(packed.name());
  for (const FusedMember& member : packed.members()) {
    if (tensor == nullptr) tensor = recorded.Find(member.module);
  }
  return tensor;
}

Status GemmInputs::AddRecorded(const PackedModule& packed, const Checkpoint& recorded) {
  const StoredTensor* tensor = FindRecorded(recorded, packed);
  if (tensor == nullptr) return {};
  const uint64_t k = packed.request().k;
  const bool is_float =
      tensor->dtype == DType::kBF16 || tensor->dtype == DType::kF16 || tensor->dtype == DType::kF32;
  if (!is_float || tensor->shape.empty() || tensor->shape.back() != k || tensor->bytes == 0) {
    return Usage(recorded.Where(*tensor), "the recorded activations do not match the module")
        .Found(fmt::format("{} with {} channels", DTypeName(tensor->dtype),
                           tensor->shape.empty() ? 0 : tensor->shape.back()))
        .Expected(fmt::format("BF16, F16 or F32 [M, {}]", k));
  }
  const uint64_t stored_rows = tensor->bytes * 8 / DTypeBits(tensor->dtype) / k;
  const uint64_t rows = std::min(stored_rows, kMaxRecordedRows);
  // With act-order, the channels of a slab lie anywhere.
  const bool scattered = slab_ && packed.request().reordered;
  const uint64_t first = slab_ && !scattered ? slab_->k0 : 0;
  std::vector<float> line(scattered ? k : k_);
  // In place of what was drawn, which would be kept twice.
  auto dense = std::make_shared<DrawnRows>(*drawn_);
  dense->rows.reserve(dense->rows.size() + rows * k_);
  for (uint64_t row = 0; row < rows; ++row) {
    PREPACK_TRY(ReadFloats(recorded, *tensor, row * k + first, line));
    for (uint64_t i = 0; i < k_; ++i) {
      const float value = line[scattered ? channels_[i] : i];
      if (!std::isfinite(value)) {
        return Usage(recorded.Where(*tensor), "a recorded activation is not a finite number");
      }
      dense->rows.push_back(static_cast<double>(value));
    }
  }
  drawn_ = std::move(dense);
  batches_.push_back({"recorded", dense_rows_, rows});
  dense_rows_ += rows;
  return {};
}

Status GemmInputs::ReadOrder(const PackedModule& packed) {
  const uint64_t k = packed.request().k;
  const uint64_t first = slab_ ? slab_->k0 : 0;
  order_.resize(k_);
  std::iota(order_.begin(), order_.end(), 0);
  if (slab_) {
    channels_.resize(k_);
    std::iota(channels_.begin(), channels_.end(), first);
  }
  if (FindPart(packed.parts(), PartRole::kInputOrder) == nullptr) return {};
  std::vector<int32_t> stored(k_);
  PREPACK_TRY(packed.ReadPart(PartRole::kInputOrder, first * sizeof(int32_t),
                              std::as_writable_bytes(std::span(stored))));
  std::vector<bool> seen(k);
  std::vector<uint64_t>& order = slab_ ? channels_ : order_;
  for (uint64_t j = 0; j < k_; ++j) {
    const bool inside = stored[j] >= 0 && static_cast<uint64_t>(stored[j]) < k;
    if (!inside || seen[static_cast<uint64_t>(stored[j])]) {
      return Malformed(fmt::format("module {}", packed.name()),
                       "the order of inputs does not name each input channel once")
          .Found(fmt::format("{} at [{}]", stored[j], first + j));
    }
    order[j] = static_cast<uint64_t>(stored[j]);
    seen[order[j]] = true;
  }
  return {};
}

}  // namespace prepack
