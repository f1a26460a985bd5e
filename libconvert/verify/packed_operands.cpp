#include "verify/packed_operands.h"

#include "base/checked.h"
#include "base/float_convert.h"
#include "gemm/model_operands.h"
#include "verify/kernel_weights.h"

namespace prepack {
namespace {

ActivationQuantizer QuantizerOf(const ActivationScheme& activations) {
  if (activations.dynamic) {
    return activations.symmetric ? ActivationQuantizer::kDynamicSymmetric
                                 : ActivationQuantizer::kDynamicAsymmetric;
  }
  return activations.symmetric ? ActivationQuantizer::kStaticSymmetric
                               : ActivationQuantizer::kStaticAsymmetric;
}

DType DTypeOfPart(const PackedModule& packed, PartRole role) {
  const PartSpec* part = FindPart(packed.parts(), role);
  return part == nullptr ? DType::kF32 : part->dtype;
}

}  // namespace

DType InputDType(const PackedModule& packed) {
  const bool always_bf16 = packed.layout().id == "onednn/w4a16";
  return always_bf16 ? DType::kBF16 : packed.request().activation_dtype;
}

LoadedOperands::LoadedOperands(const PackedModule& packed)
    : packed_(&packed), consumer_scales_(ConsumerScales(packed.layout(), packed.request())) {}

Result<LoadedOperands> LoadedOperands::Load(const PackedModule& packed) {
  LoadedOperands operands(packed);
  Status status = operands.Read();
  if (!status.ok()) return status;
  return operands;
}

Status LoadedOperands::Read() {
  const PackedModule& packed = *packed_;
  Status status = packed.ReadWholePart(PartRole::kScale, scale_);
  if (status.ok()) status = packed.ReadWholePart(PartRole::kZeroPoint, zero_point_);
  if (status.ok()) status = packed.ReadWholePart(PartRole::kBias, bias_);
  if (status.ok()) status = packed.ReadWholePart(PartRole::kWeightSum, weight_sum_);
  const std::span scale(&input_scale_, 1);
  if (status.ok() && FindPart(packed.parts(), PartRole::kInputScale) != nullptr) {
    status = packed.ReadPart(PartRole::kInputScale, 0, std::as_writable_bytes(scale));
  }
  const std::span zero_point(&input_zero_point_, 1);
  if (status.ok() && FindPart(packed.parts(), PartRole::kInputZeroPoint) != nullptr) {
    status = packed.ReadPart(PartRole::kInputZeroPoint, 0, std::as_writable_bytes(zero_point));
  }
  constexpr uint64_t kInputsPerScale = 128;  // of the op that consumers give ones to
  if (status.ok() && consumer_scales_) {
    ones_.assign(CeilDiv(packed.request().k, kInputsPerScale), 1.0F);
    consumer_scale_ = LoadFloats(DTypeOfPart(packed, PartRole::kScale), scale_);
    consumer_bias_ = Bias();
  }
  return status;
}

PackedOperands LoadedOperands::With(std::span<const std::byte> weight) const {
  const PackRequest& request = packed_->request();
  PackedOperands operands{.n = request.n,
                          .k = request.k,
                          .group_size = request.scheme.group_size,
                          .block_rows = request.scheme.scale_rows,
                          .scale_dtype = DTypeOfPart(*packed_, PartRole::kScale),
                          .bias_dtype = DTypeOfPart(*packed_, PartRole::kBias),
                          .weight = weight,
                          .scale = scale_,
                          .zero_point = zero_point_,
                          .bias = bias_,
                          .weight_sum = weight_sum_,
                          .activations = QuantizerOf(request.scheme.activations),
                          .input_scale = input_scale_,
                          .input_zero_point = input_zero_point_};
  if (consumer_scales_) {
    operands.block_rows = request.n;
    operands.scale = std::as_bytes(std::span(ones_));
    operands.bias = {};
  }
  return operands;
}

std::vector<float> LoadedOperands::Bias() const {
  return LoadFloats(DTypeOfPart(*packed_, PartRole::kBias), bias_);
}

void LoadedOperands::Finish(uint64_t n0, uint64_t channels, std::span<float> y) const {
  if (!consumer_scales_) return;
  for (uint64_t i = 0; i < y.size(); ++i) {
    const uint64_t n = n0 + i % channels;
    y[i] = RoundTo(packed_->request().activation_dtype,
                   y[i] * consumer_scale_[n] + BiasOf(consumer_bias_, n));
  }
}

}  // namespace prepack
