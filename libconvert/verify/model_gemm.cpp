#include "verify/model_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/checked.h"
#include "base/float_convert.h"
#include "canonical/panel_shape.h"
#include "gemm/kernel_model.h"
#include "layouts/onednn_w8a8.h"

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

std::vector<float> AsFloats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// What the kernel is given. oneDNN's W4A16 computes in bf16 whatever it is given.
DType InputDType(const PackedModule& packed) {
  const bool always_bf16 = packed.layout().id == "onednn/w4a16";
  return always_bf16 ? DType::kBF16 : packed.request().activation_dtype;
}

// The models know two forms of onednn/w8a8.
bool IsModelledForm(const PackRequest& request) {
  if (!request.weights_desc) return true;
  return *request.weights_desc == DefaultW8A8Desc(request) ||
         *request.weights_desc == PlainDesc(request.k, request.n);
}

// All parts but the weight, copied out of the folder.
class ModelOperands {
 public:
  explicit ModelOperands(const PackedModule& packed)
      : packed_(packed), consumer_scales_(ConsumerScales(packed.layout(), packed.request())) {}

  Status Read();
  // `weight` must outlive the result, and so must this object.
  PackedOperands With(std::span<const std::byte> weight) const;
  // What the consumer does to y after the op.
  void Finish(std::span<float> y) const;

 private:
  const PackedModule& packed_;
  bool consumer_scales_;
  std::vector<std::byte> scale_;
  std::vector<std::byte> zero_point_;
  std::vector<std::byte> bias_;
  std::vector<std::byte> weight_sum_;
  std::vector<float> ones_;  // scales for the op, where the consumer multiplies with the real ones
  float input_scale_ = 0;
  int32_t input_zero_point_ = 0;
};

Status ModelOperands::Read() {
  Status status = packed_.ReadWholePart(PartRole::kScale, scale_);
  if (status.ok()) status = packed_.ReadWholePart(PartRole::kZeroPoint, zero_point_);
  if (status.ok()) status = packed_.ReadWholePart(PartRole::kBias, bias_);
  if (status.ok()) status = packed_.ReadWholePart(PartRole::kWeightSum, weight_sum_);
  const std::span scale(&input_scale_, 1);
  if (status.ok() && FindPart(packed_.parts(), PartRole::kInputScale) != nullptr) {
    status = packed_.ReadPart(PartRole::kInputScale, 0, std::as_writable_bytes(scale));
  }
  const std::span zero_point(&input_zero_point_, 1);
  if (status.ok() && FindPart(packed_.parts(), PartRole::kInputZeroPoint) != nullptr) {
    status = packed_.ReadPart(PartRole::kInputZeroPoint, 0, std::as_writable_bytes(zero_point));
  }
  constexpr uint64_t kInputsPerScale = 128;  // of the op that consumers give ones to
  if (consumer_scales_) ones_.assign(CeilDiv(packed_.request().k, kInputsPerScale), 1.0F);
  return status;
}

PackedOperands ModelOperands::With(std::span<const std::byte> weight) const {
  const PackRequest& request = packed_.request();
  PackedOperands operands{.n = request.n,
                          .k = request.k,
                          .group_size = request.scheme.group_size,
                          .block_rows = request.scheme.scale_rows,
                          .scale_dtype = DTypeOfPart(packed_, PartRole::kScale),
                          .bias_dtype = DTypeOfPart(packed_, PartRole::kBias),
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

void ModelOperands::Finish(std::span<float> y) const {
  if (!consumer_scales_) return;
  const std::vector<float> scales = AsFloats(scale_);
  const std::vector<float> bias = AsFloats(bias_);
  for (uint64_t i = 0; i < y.size(); ++i) {
    const uint64_t n = i % scales.size();
    const float sum = y[i] * scales[n] + (bias.empty() ? 0.0F : bias[n]);
    y[i] = RoundTo(packed_.request().activation_dtype, sum);
  }
}

// y [M, N], and the activations as the kernel multiplies them.
Status RunModel(const PackedModule& packed, const PackedOperands& operands, Isa isa,
                std::span<const float> input, std::span<float> y,
                std::vector<double>& activations) {
  Result<std::unique_ptr<KernelModel>> model =
      MakeKernelModel(packed.layout().id, operands,
                      {.m = kGemmRows, .dtype = InputDType(packed), .x = input, .isa = isa});
  if (!model.ok()) return model.status();
  activations = (*model)->Activations();
  return (*model)->Run(/*n0=*/0, y);
}

// Feeds the module, and finds out what its kernel makes of that.
Status Multiply(const PackedModule& packed, GemmTruth& truth, std::span<float> y) {
  ModelOperands operands(packed);
  Status status = operands.Read();
  if (!status.ok()) return status;
  Status ran;
  std::vector<double> activations;
  status = packed.VisitWeight([&](std::span<const std::byte> weight) {
    ran = RunModel(packed, operands.With(weight), truth.isa(), truth.input(), y, activations);
  });
  if (!status.ok()) return status;
  if (!ran.ok()) {
    // The layout took the module; what its model does not take is a limit of the model.
    return Unsupported(fmt::format("module {}", packed.name()), ran.ToString());
  }
  truth.SetKernelActivations(activations);
  operands.Finish(y);
  return {};
}

// Columns [n0, n0 + rows) of y [M, N].
std::vector<float> Columns(std::span<const float> y, uint64_t n, uint64_t n0, uint64_t rows) {
  std::vector<float> columns;
  columns.reserve(kGemmRows * rows);
  for (uint64_t m = 0; m < kGemmRows; ++m) {
    const auto line = y.subspan(m * n + n0, rows);
    columns.insert(columns.end(), line.begin(), line.end());
  }
  return columns;
}

std::string NameOfActivations(const PackedModule& packed) {
  const ActivationScheme& activations = packed.request().scheme.activations;
  if (activations.type != ActivationType::kNone) return DescribeActivations(activations);
  const DType dtype = InputDType(packed);
  if (dtype == DType::kBF16) return "bf16";
  return dtype == DType::kF16 ? "f16" : "f32";
}

}  // namespace

Result<GemmSums> MultiplyByModel(const PackedModule& packed, const SecondDecoder& source,
                                 Progress& progress) {
  const PackRequest& request = packed.request();
  const std::optional<WeightRounding> rounding = WeightRoundingOf(packed.layout(), request);
  if (!rounding || !IsModelledForm(request)) {
    return Unsupported(fmt::format("module {}", packed.name()),
                       "no model computes what a kernel makes of this form of the weights")
        .Found(packed.layout().id);
  }
  Result<GemmTruth> truth = GemmTruth::Make(packed, source, InputDType(packed));
  if (!truth.ok()) return truth.status();
  Status status = truth->AddBias();
  std::vector<float> y(kGemmRows * request.n);
  if (status.ok()) status = Multiply(packed, *truth, y);
  if (!status.ok()) return status;

  GemmSums figures;
  figures.implementation = fmt::format("model of {}", packed.layout().id);
  figures.activations = NameOfActivations(packed);
  const uint64_t step =
      PanelRowsFor(request.scheme.code, request.k, packed.layout().cut(request).rows);
  for (uint64_t n0 = 0; n0 < request.n; n0 += step) {
    if (CancellationRequested()) return Interrupted(packed.name());
    const uint64_t rows = std::min(step, request.n - n0);
    status = truth->Compare(*rounding, n0, Columns(y, request.n, n0, rows), figures);
    if (!status.ok()) return status;
    progress.Add(rows * request.k);
  }
  return figures;
}

}  // namespace prepack
