// Weights for the second implementation, when the first one is a model that walks the packed bytes:
// they come from the layout's unpack functions, so a mistake in unpacking shows as a difference
// between the two.

#include "prepack/verify/packed_operands.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/panel.h"
#include "prepack/verify/kernel_weights.h"

namespace prepack {
namespace {

// One row of codes as numbers, zero points not subtracted.
void FillValues(CodeType code, std::span<const std::byte> row, std::span<float> values) {
  if (code == CodeType::kBF16) {
    for (size_t k = 0; k < values.size(); ++k) {
      uint16_t bits = 0;
      std::memcpy(&bits, &row[k * sizeof bits], sizeof bits);
      values[k] = BF16ToF32(bits);
    }
  } else if (IsNibble(code)) {
    const std::array<float, 256>& table = CodeValues(code);
    for (size_t pair = 0; pair < values.size() / 2; ++pair) {
      const auto byte = std::to_integer<int>(row[pair]);
      values[2 * pair] = table[static_cast<size_t>(byte & 15)];
      values[2 * pair + 1] = table[static_cast<size_t>(byte >> 4)];
    }
  } else {
    const std::array<float, 256>& table = CodeValues(code);
    for (size_t k = 0; k < values.size(); ++k) values[k] = table[std::to_integer<uint8_t>(row[k])];
  }
}

}  // namespace

Status UnpackWeights(const PackedModule& packed, WeightRounding rounding, const InputSlab& slab,
                     uint64_t n0, uint64_t channels, UnpackBuffers& buffers) {
  const PackRequest& request = packed.request();
  const CodeType code = request.scheme.code;
  const uint64_t k = slab.inputs;
  const uint64_t groups = request.groups();
  buffers.codes.resize(PanelBytes(code, {.n0 = n0, .rows = channels, .k0 = slab.k0, .cols = k}));
  buffers.scales.resize(channels * groups);
  buffers.zero_points.resize(channels * groups);
  Status status = packed.ReadCodes(n0, channels, slab, buffers.packed, buffers.codes);
  if (status.ok()) status = packed.ReadScales(n0, channels, buffers.packed, buffers.scales);
  if (status.ok()) {
    status = packed.ReadZeroPoints(n0, channels, buffers.packed, buffers.zero_points);
  }
  if (!status.ok()) return status;

  DecodedRows& decoded = buffers.decoded;
  decoded.steps.resize(channels * k);
  decoded.scales.assign(buffers.scales.begin(), buffers.scales.end());
  decoded.group_of.resize(k);
  for (uint64_t j = 0; j < k; ++j) {
    decoded.group_of[j] = (slab.k0 + j) / request.scheme.group_size;
  }
  for (uint64_t row = 0; row < channels; ++row) {
    const std::span steps = std::span(decoded.steps).subspan(row * k, k);
    FillValues(
        code,
        std::span(buffers.codes).subspan(row * PanelRowBytes(code, k), PanelRowBytes(code, k)),
        steps);
    const uint8_t* zero_points = &buffers.zero_points[row * groups];
    for (uint64_t j = 0; j < k;) {
      const uint64_t group = decoded.group_of[j];
      const uint64_t end = std::min((group + 1) * request.scheme.group_size - slab.k0, k);
      const auto zero_point = static_cast<float>(zero_points[group]);
      for (; j < end; ++j) steps[j] -= zero_point;
    }
  }
  buffers.weights.resize(channels * k);
  FillKernelWeights(rounding, packed.layout(), request, decoded, std::span(buffers.weights));
  return {};
}

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
  PREPACK_TRY(operands.Read());
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
  constexpr uint64_t kInputsPerScale = 128;  // of the op, to which consumers pass scales of 1
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
