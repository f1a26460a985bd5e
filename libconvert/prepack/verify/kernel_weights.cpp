// Every kernel rounds weights in its own way before it multiplies. The truth for "kernel" figures
// needs those rounded weights, computed from the source: if the truth rounded less than the kernel,
// rounding would look like an error and hide real ones.

#include "prepack/verify/kernel_weights.h"

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "prepack/base/float_convert.h"

namespace prepack {
namespace {

struct RoundingRow {
  std::string_view layout;
  WeightRounding rounding;
};

constexpr std::array kRoundings = {
    RoundingRow{"vllm-cpu/wna16", WeightRounding::kToActivation},
    RoundingRow{"vllm-cpu/int4-w4a8", WeightRounding::kNone},
    RoundingRow{"vllm-cpu/int8-vnni", WeightRounding::kNone},
    RoundingRow{"vllm-cpu/int8-plain", WeightRounding::kNone},
    RoundingRow{"vllm-cpu/fp8-vnni", WeightRounding::kFp8ToBF16},
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
    RoundingRow{"plain/bf16-conv1d", WeightRounding::kDequantized},
};

// How vLLM's FP8 kernel reads an e4m3 number: zeros and subnormals, m · 2^-9 with m from 0 to 7,
// become (1 + m / 8) · 2^-7.
float ReadAsNormal(float value) {
  const float magnitude = std::abs(value);
  if (magnitude >= 0x1p-6F) return value;
  return std::copysign(0x1p-7F * (1 + magnitude * 0x1p9F / 8), value);
}

// kToActivation means f16 here; if the activations are bf16, it is the same as kToBF16.
template <WeightRounding kRounding>
double Operand(float step, float scale) {
  switch (kRounding) {
    case WeightRounding::kNone:
      return static_cast<double>(step) * static_cast<double>(scale);
    case WeightRounding::kToF32:
      return static_cast<double>(step * scale);
    case WeightRounding::kToBF16:
      return static_cast<double>(RoundByInstruction(DType::kBF16, step * scale));
    case WeightRounding::kToActivation:
      return static_cast<double>(RoundByInstruction(DType::kF16, step * scale));
    case WeightRounding::kFp8:
      return static_cast<double>(ReadAsNormal(step)) * static_cast<double>(scale);
    case WeightRounding::kFp8ToBF16:
      return static_cast<double>(RoundByInstruction(DType::kBF16, ReadAsNormal(step) * scale));
    case WeightRounding::kDequantized:
      return static_cast<double>(RoundTo(DType::kBF16, step * scale));
  }
  return 0;
}

// Ends of the runs of consecutive input channels with the same group.
std::vector<uint64_t> RunsOf(std::span<const uint64_t> group_of) {
  std::vector<uint64_t> ends;
  for (uint64_t k = 1; k <= group_of.size(); ++k) {
    if (k == group_of.size() || group_of[k] != group_of[k - 1]) ends.push_back(k);
  }
  return ends;
}

// All operands, with scales [rows, groups] as the layout stores them. With the rounding and the
// scale of a run fixed, the loop over its weights takes several at a time.
template <WeightRounding kRounding, typename T>
void FillOperands(const DecodedRows& decoded, std::span<const float> scales,
                  std::span<T> operands) {
  const uint64_t inputs = decoded.inputs();
  const std::vector<uint64_t> runs = RunsOf(decoded.group_of);
  for (uint64_t row = 0; row < decoded.rows(); ++row) {
    const float* steps = &decoded.steps[row * inputs];
    T* to = &operands[row * inputs];
    uint64_t k = 0;
    for (const uint64_t end : runs) {
      const float scale = scales[row * decoded.groups() + decoded.group_of[k]];
      for (; k < end; ++k) to[k] = static_cast<T>(Operand<kRounding>(steps[k], scale));
    }
  }
}

template <typename T>
void FillAs(WeightRounding rounding, const Layout& layout, const PackRequest& request,
            const DecodedRows& decoded, std::span<T> operands) {
  const DType scale_dtype = layout.scales.value.Of(request);
  std::vector<float> scales(decoded.scales.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = RoundTo(scale_dtype, static_cast<float>(decoded.scales[i]));
  }
  const bool to_f16 = request.activation_dtype == DType::kF16;
  switch (rounding) {
    case WeightRounding::kNone:
      return FillOperands<WeightRounding::kNone>(decoded, scales, operands);
    case WeightRounding::kToF32:
      return FillOperands<WeightRounding::kToF32>(decoded, scales, operands);
    case WeightRounding::kToBF16:
      return FillOperands<WeightRounding::kToBF16>(decoded, scales, operands);
    case WeightRounding::kToActivation:
      if (!to_f16) return FillOperands<WeightRounding::kToBF16>(decoded, scales, operands);
      return FillOperands<WeightRounding::kToActivation>(decoded, scales, operands);
    case WeightRounding::kFp8:
      return FillOperands<WeightRounding::kFp8>(decoded, scales, operands);
    case WeightRounding::kFp8ToBF16:
      return FillOperands<WeightRounding::kFp8ToBF16>(decoded, scales, operands);
    case WeightRounding::kDequantized:
      return FillOperands<WeightRounding::kDequantized>(decoded, scales, operands);
  }
}

}  // namespace

std::optional<WeightRounding> WeightRoundingOf(const Layout& layout, const PackRequest& request) {
  if (layout.consumer_scales.Of(request)) return WeightRounding::kFp8;
  for (const RoundingRow& row : kRoundings) {
    if (row.layout == layout.id) return row.rounding;
  }
  return std::nullopt;
}

void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<double> operands) {
  FillAs(rounding, layout, request, decoded, operands);
}

void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<float> operands) {
  FillAs(rounding, layout, request, decoded, operands);
}

void FillExactWeights(const DecodedRows& decoded, std::span<double> weights) {
  const uint64_t inputs = decoded.inputs();
  const std::vector<uint64_t> runs = RunsOf(decoded.group_of);
  for (uint64_t row = 0; row < decoded.rows(); ++row) {
    const float* steps = &decoded.steps[row * inputs];
    double* to = &weights[row * inputs];
    uint64_t k = 0;
    for (const uint64_t end : runs) {
      const double scale = decoded.scales[row * decoded.groups() + decoded.group_of[k]];
      for (; k < end; ++k) to[k] = static_cast<double>(steps[k]) * scale;
    }
  }
}

}  // namespace prepack
