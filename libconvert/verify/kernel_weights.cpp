#include "verify/kernel_weights.h"

#include <array>
#include <cmath>
#include <string_view>

#include "base/float_convert.h"

namespace prepack {
namespace {

struct RoundingRow {
  std::string_view layout;
  WeightRounding rounding;
};

constexpr std::string_view kFp8Vnni = "vllm-cpu/fp8-vnni";

constexpr std::array kRoundings = {
    RoundingRow{"vllm-cpu/wna16", WeightRounding::kToActivation},
    RoundingRow{"vllm-cpu/int4-w4a8", WeightRounding::kNone},
    RoundingRow{"vllm-cpu/int8-vnni", WeightRounding::kNone},
    RoundingRow{"vllm-cpu/int8-plain", WeightRounding::kNone},
    RoundingRow{kFp8Vnni, WeightRounding::kFp8ToBF16},
    RoundingRow{"vllm-cpu/fp8-w8a8-vnni4", WeightRounding::kNone},
    RoundingRow{"vllm-cpu/fp8-w8a8-plain", WeightRounding::kNone},
    RoundingRow{"vllm-cpu/bf16-vnni", WeightRounding::kDequantized},
    RoundingRow{"zentorch/woq", WeightRounding::kToBF16},
    RoundingRow{"zentorch/da8w4", WeightRounding::kNone},
    RoundingRow{"zentorch/int8", WeightRounding::kNone},
    RoundingRow{"zentorch/int8-dlp", WeightRounding::kNone},
    RoundingRow{"onednn/w4a16", WeightRounding::kToBF16},
    RoundingRow{"onednn/w4a8", WeightRounding::kNone},
    RoundingRow{"onednn/w8a8", WeightRounding::kNone},
    RoundingRow{"plain/bf16", WeightRounding::kDequantized},
};

// What vLLM's FP8 kernel takes an e4m3 number for: zeros and subnormals, m · 2^-9 with m of 0 to 7,
// become (1 + m / 8) · 2^-7.
float ReadAsNormal(float value) {
  const float magnitude = std::abs(value);
  if (magnitude >= 0x1p-6F) return value;
  return std::copysign(0x1p-7F * (1 + magnitude * 0x1p9F / 8), value);
}

double Operand(WeightRounding rounding, DType activation, float step, float scale) {
  switch (rounding) {
    case WeightRounding::kNone:
      return static_cast<double>(step) * static_cast<double>(scale);
    case WeightRounding::kToF32:
      return static_cast<double>(step * scale);
    case WeightRounding::kToActivation:
      return static_cast<double>(
          RoundByInstruction(activation == DType::kF16 ? DType::kF16 : DType::kBF16, step * scale));
    case WeightRounding::kToBF16:
      return static_cast<double>(RoundByInstruction(DType::kBF16, step * scale));
    case WeightRounding::kFp8:
      return static_cast<double>(ReadAsNormal(step)) * static_cast<double>(scale);
    case WeightRounding::kFp8ToBF16:
      return static_cast<double>(RoundByInstruction(DType::kBF16, ReadAsNormal(step) * scale));
    case WeightRounding::kDequantized:
      return static_cast<double>(RoundTo(DType::kBF16, step * scale));
  }
  return 0;
}

}  // namespace

bool ConsumerScales(const Layout& layout, const PackRequest& request) {
  return layout.id == kFp8Vnni && request.scheme.granularity == Granularity::kChannel;
}

std::optional<WeightRounding> WeightRoundingOf(const Layout& layout, const PackRequest& request) {
  if (ConsumerScales(layout, request)) return WeightRounding::kFp8;
  for (const RoundingRow& row : kRoundings) {
    if (row.layout == layout.id) return row.rounding;
  }
  return std::nullopt;
}

void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<double> operands) {
  const bool rounds_scale = layout.scale_form != nullptr;
  const DType scale_dtype = rounds_scale ? layout.scale_form(request).value : DType::kF32;
  for (size_t i = 0; i < operands.size(); ++i) {
    const float scale = RoundTo(scale_dtype, static_cast<float>(decoded.scales[i]));
    operands[i] = Operand(rounding, request.activation_dtype, decoded.steps[i], scale);
  }
}

void FillExactWeights(const DecodedRows& decoded, std::span<double> weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<double>(decoded.steps[i]) * decoded.scales[i];
  }
}

}  // namespace prepack
