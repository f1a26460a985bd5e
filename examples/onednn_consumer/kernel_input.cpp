#include "kernel_input.h"

#include <algorithm>
#include <cmath>

#include "floats.h"

namespace {

constexpr float kLeastRange = 1e-10F;  // so that a row of zeros has a scale

struct RowScale {
  float scale = 1;
  int32_t zero_point = 0;
};

RowScale Symmetric(std::span<const float> row) {
  float largest = kLeastRange;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  return {.scale = largest / 127, .zero_point = 0};
}

// The range of the row with 0 in it, over all codes from -128 to 127.
RowScale Asymmetric(std::span<const float> row) {
  const auto [least, largest] = std::ranges::minmax(row);
  const float low = std::min(least, 0.0F);
  const float scale = std::max(std::max(largest, 0.0F) - low, kLeastRange) / 255;
  return {.scale = scale, .zero_point = static_cast<int32_t>(std::nearbyint(-128 - low / scale))};
}

RowScale ScaleOf(const Module& module, const Operands& operands, std::span<const float> row) {
  if (!module.activations.dynamic) {
    return {.scale = operands.input_scale, .zero_point = operands.input_zero_point};
  }
  return module.activations.symmetric ? Symmetric(row) : Asymmetric(row);
}

void QuantizeRow(std::span<const float> row, const RowScale& by, KernelInput& input) {
  const auto zero_point = static_cast<float>(by.zero_point);
  for (const float value : row) {
    const float code = std::clamp(std::nearbyint(value / by.scale) + zero_point, -128.0F, 127.0F);
    input.s8.push_back(static_cast<int8_t>(code));
    input.values.push_back((code - zero_point) * by.scale);
  }
  input.scales.push_back(by.scale);
  input.zero_points.push_back(by.zero_point);
}

}  // namespace

void* KernelInput::data() {
  if (!s8.empty()) return s8.data();
  return bf16.empty() ? static_cast<void*>(f32.data()) : bf16.data();
}

std::vector<float> Ordered(std::span<const float> x, uint64_t k, const Operands& operands) {
  std::vector<float> ordered(x.begin(), x.end());
  if (operands.input_order.empty()) return ordered;
  for (uint64_t i = 0; i < x.size(); ++i) {
    ordered[i] = x[i / k * k + operands.input_order[i % k]];
  }
  return ordered;
}

KernelInput MakeKernelInput(const Module& module, const Operands& operands, InputType type,
                            std::span<const float> x) {
  KernelInput input;
  if (type == InputType::kS8) {
    for (uint64_t i = 0; i < x.size(); i += module.k) {
      const std::span<const float> row = x.subspan(i, module.k);
      QuantizeRow(row, ScaleOf(module, operands, row), input);
    }
    return input;
  }
  for (const float value : x) {
    const uint16_t half = ToBF16(value);
    input.values.push_back(FromBF16(half));
    if (type == InputType::kBF16) input.bf16.push_back(half);
  }
  if (input.bf16.empty()) input.f32 = input.values;
  return input;
}
