#include "verify/gemm_truth.h"

#include <fmt/format.h>

#include <utility>

#include "base/float_convert.h"
#include "base/random.h"

namespace prepack {
namespace {

uint64_t SeedOf(std::string_view module) {
  uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a: each module gets activations of its own
  for (const char c : module) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

// Of a normal distribution.
struct Distribution {
  double mean = 0;
  double deviation = 1;
};

// Values of 8 bits reach four deviations: as much as the checkpoint saw, and what is cut off is no
// more than what is rounded.
Distribution DistributionOf(const DecodedInput& input) {
  return {.mean = (-0.5 - input.zero_point) * input.scale, .deviation = 127.5 / 4 * input.scale};
}

void AddRows(std::span<const double> bias, std::span<double> y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

}  // namespace

Result<GemmTruth> GemmTruth::Make(const PackedModule& packed, const SecondDecoder& source,
                                  DType dtype) {
  const Result<Isa> isa = ChooseIsa();
  if (!isa.ok()) return isa.status();
  GemmTruth truth(packed, source);
  truth.isa_ = *isa;
  Status status = truth.ReadOrder();
  if (status.ok()) status = truth.Draw(dtype);
  if (!status.ok()) return status;
  return truth;
}

Status GemmTruth::ReadOrder() {
  const uint64_t k = packed_->request().k;
  order_.resize(k);
  for (uint64_t j = 0; j < k; ++j) order_[j] = j;
  if (FindPart(packed_->parts(), PartRole::kInputOrder) == nullptr) return {};
  std::vector<int32_t> stored(k);
  Status status =
      packed_->ReadPart(PartRole::kInputOrder, 0, std::as_writable_bytes(std::span(stored)));
  if (!status.ok()) return status;
  std::vector<bool> seen(k);
  for (uint64_t j = 0; j < k; ++j) {
    const bool inside = stored[j] >= 0 && static_cast<uint64_t>(stored[j]) < k;
    if (!inside || seen[static_cast<uint64_t>(stored[j])]) {
      return Malformed(fmt::format("module {}", packed_->name()),
                       "the order of inputs does not name each input channel once")
          .Found(fmt::format("{} at [{}]", stored[j], j));
    }
    order_[j] = static_cast<uint64_t>(stored[j]);
    seen[order_[j]] = true;
  }
  return {};
}

Status GemmTruth::Draw(DType dtype) {
  const uint64_t k = packed_->request().k;
  Distribution distribution;
  if (!packed_->request().scheme.activations.dynamic) {
    const Result<DecodedInput> input = source_->ReadInput(packed_->name());
    if (!input.ok()) return input.status();
    distribution = DistributionOf(*input);
  }
  SplitMix64 random(SeedOf(packed_->name()));
  std::vector<float> rounded;
  for (uint64_t i = 0; i < kGemmRows * k; ++i) {
    const double value = distribution.mean + distribution.deviation * random.Gaussian();
    rounded.push_back(RoundTo(dtype, static_cast<float>(value)));
    exact_activations_.push_back(value);
    kernel_activations_.push_back(static_cast<double>(rounded.back()));
  }
  for (uint64_t i = 0; i < rounded.size(); ++i) {
    input_.push_back(rounded[i / k * k + order_[i % k]]);
  }
  return {};
}

void GemmTruth::SetKernelActivations(std::span<const double> packed_order) {
  const uint64_t k = order_.size();
  for (uint64_t i = 0; i < packed_order.size(); ++i) {
    kernel_activations_[i / k * k + order_[i % k]] = packed_order[i];
  }
}

Status GemmTruth::AddBias() {
  const PartSpec* part = FindPart(packed_->parts(), PartRole::kBias);
  if (part == nullptr) return {};
  Status status = source_->ReadBias(packed_->name(), exact_bias_);
  if (!status.ok()) return status;
  if (exact_bias_.size() != packed_->request().n) {
    return Malformed(fmt::format("module {}", packed_->name()),
                     "the bias of the source has another size");
  }
  for (const double value : exact_bias_) {
    kernel_bias_.push_back(static_cast<double>(RoundTo(part->dtype, static_cast<float>(value))));
  }
  return {};
}

Status GemmTruth::Compare(WeightRounding rounding, uint64_t n0, std::span<const float> y,
                          GemmSums& figures) {
  const PackRequest& request = packed_->request();
  const uint64_t rows = y.size() / kGemmRows;
  Status status = source_->Decode(packed_->name(), request.k, n0, rows, decoded_);
  if (!status.ok()) return status;
  weights_.resize(rows * request.k);
  y_.resize(y.size());
  FillExactWeights(decoded_, weights_);
  ReferenceGemm(isa_, kGemmRows, rows, request.k, exact_activations_, weights_, y_);
  if (!exact_bias_.empty()) AddRows(std::span(exact_bias_).subspan(n0, rows), y_);
  figures.end_to_end.Add(y_, y);
  FillKernelWeights(rounding, packed_->layout(), request, decoded_, weights_);
  ReferenceGemm(isa_, kGemmRows, rows, request.k, kernel_activations_, weights_, y_);
  if (!kernel_bias_.empty()) AddRows(std::span(kernel_bias_).subspan(n0, rows), y_);
  figures.kernel.Add(y_, y);
  return {};
}

}  // namespace prepack
