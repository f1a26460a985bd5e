#include "prepack/gemm/activation_quantizers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace prepack {
namespace {

// The bits of numbers without a sign are in the order of the numbers, and compilers find their
// largest several at a time.
float LargestMagnitude(std::span<const float> row) {
  int32_t largest = 0;
  for (const float value : row) {
    largest = std::max(largest, std::bit_cast<int32_t>(value) & 0x7FFFFFFF);
  }
  return std::bit_cast<float>(largest);
}

// As std::nearbyint where |value| < 2^22, in registers: the sum has no room for a fraction.
float ToNearest(float value) {
  constexpr float kShift = 0x1.8p23F;
  return (value + kShift) - kShift;
}

// To the nearest integer, ties to even, in the range of s8. NaN becomes 0: the instruction yields
// -2^31, and the store keeps its low byte.
int16_t ToS8(float value) {
  const float number = std::isnan(value) ? 0.0F : value;
  return static_cast<int16_t>(ToNearest(std::clamp(number, -128.0F, 127.0F)));
}

// The same with the fraction cut off.
int16_t CutToS8(float value) {
  const float number = std::isnan(value) ? 0.0F : value;
  return static_cast<int16_t>(std::clamp(number, -128.0F, 127.0F));
}

// Appends `quantize` of each number of a row.
template <typename Quantize>
void AppendRow(std::span<const float> row, QuantizedRows& rows, const Quantize& quantize) {
  const size_t first = rows.values.size();
  rows.values.resize(first + row.size());
  int16_t* to = &rows.values[first];
  for (size_t i = 0; i < row.size(); ++i) to[i] = quantize(row[i]);
}

// The same of `scaled` of each number, as the CPU makes s8 of it.
template <typename Scale>
void AppendS8(std::span<const float> row, QuantizerCpu cpu, QuantizedRows& rows,
              const Scale& scaled) {
  if (cpu == QuantizerCpu::kX86) {
    AppendRow(row, rows, [&](float value) { return ToS8(scaled(value)); });
  } else {
    AppendRow(row, rows, [&](float value) { return CutToS8(scaled(value)); });
  }
}

// Like CVTPS2DQ: -2^31 for NaN and for numbers that are out of range. FCVTZS makes 0 of NaN.
int32_t ToS32(float value, QuantizerCpu cpu) {
  if (cpu == QuantizerCpu::kArm && std::isnan(value)) return 0;
  if (!(std::abs(value) < 0x1p31F)) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(value);
}

// `value` within +-448 as e4m3, ties to even.
uint8_t ToE4M3(float value) {
  const uint32_t sign = std::signbit(value) ? 0x80U : 0U;
  const float magnitude = std::abs(value);
  // Below the smallest normal number codes count steps of 2^-9; eight steps are that number.
  if (magnitude < 0x1p-6F) {
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p9F)));
  }
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = (bits + 0x7FFFFU + ((bits >> 20) & 1U)) >> 20;  // 8 + 3 bits
  return static_cast<uint8_t>(sign | (rounded - (120U << 3)));
}

}  // namespace

QuantizedRows QuantizeSgl(std::span<const float> x, uint64_t k, Halfway halfway) {
  constexpr float kSmallest = 1e-7F;
  QuantizedRows rows;
  for (uint64_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    const float largest = std::max(LargestMagnitude(row), kSmallest);
    const float inverse = 127.0F / largest;
    const auto shifted = [](float nearest) {
      return static_cast<int16_t>(static_cast<int32_t>(nearest) + 128);
    };
    if (halfway == Halfway::kToEven) {
      AppendRow(row, rows, [=](float value) { return shifted(ToNearest(value * inverse)); });
    } else {
      AppendRow(row, rows, [=](float value) { return shifted(std::round(value * inverse)); });
    }
    rows.scales.push_back(largest / 127.0F);
    rows.zero_points.push_back(128);
  }
  return rows;
}

QuantizedRows QuantizeDynamic(std::span<const float> x, uint64_t k, QuantizerCpu cpu) {
  QuantizedRows rows;
  for (uint64_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    const float scale = LargestMagnitude(row) / 127.0F;
    const float inverse = 1.0F / scale;
    AppendS8(row, cpu, rows, [=](float value) { return value * inverse; });
    rows.scales.push_back(scale);
    rows.zero_points.push_back(0);
  }
  return rows;
}

QuantizedRows QuantizeDynamicAsymmetric(std::span<const float> x, uint64_t k, QuantizerCpu cpu) {
  QuantizedRows rows;
  for (uint64_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    const auto [least, greatest] = std::minmax_element(row.begin(), row.end());
    const float scale = (*greatest - *least) / 255.0F;
    const float inverse = 1.0F / scale;
    const float zero_point = std::nearbyint(-128.0F - *least / scale);
    AppendS8(row, cpu, rows, [=](float value) { return std::fma(value, inverse, zero_point); });
    rows.scales.push_back(scale);
    rows.zero_points.push_back(ToS32(zero_point, cpu));
  }
  return rows;
}

QuantizedRows QuantizeStatic(std::span<const float> x, uint64_t k, float scale, int32_t zero_point,
                             QuantizerCpu cpu) {
  QuantizedRows rows;
  const float inverse = 1.0F / scale;
  const auto zero = static_cast<float>(zero_point);
  AppendS8(x, cpu, rows, [=](float value) { return std::fma(value, inverse, zero); });
  rows.scales.assign(x.size() / k, scale);
  rows.zero_points.assign(x.size() / k, zero_point);
  return rows;
}

QuantizedRows QuantizeZentorch(std::span<const float> x, uint64_t k) {
  constexpr float kSmallest = 1e-10F;
  QuantizedRows rows;
  for (uint64_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    const float scale = std::max(LargestMagnitude(row) / 127.0F, kSmallest);
    AppendRow(row, rows, [=](float value) { return ToS8(value / scale); });
    rows.scales.push_back(scale);
    rows.zero_points.push_back(0);
  }
  return rows;
}

QuantizedRows QuantizeKt(std::span<const float> x, uint64_t k) {
  constexpr float kInverse127 = 1.0F / 127.0F;  // the wheel's compiler made it of / 127
  QuantizedRows rows;
  for (uint64_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    const float scale = LargestMagnitude(row) * kInverse127;
    const float inverse = scale != 0 ? 1.0F / scale : 0.0F;
    AppendRow(row, rows, [=](float value) { return ToS8(value * inverse); });
    rows.scales.push_back(scale);
    rows.zero_points.push_back(0);
  }
  return rows;
}

QuantizedRows QuantizeKleidiAi(std::span<const float> x, uint64_t k) {
  constexpr float kLeast = -128.0F;
  constexpr float kMost = 127.0F;
  QuantizedRows rows;
  for (uint64_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    const auto [smallest, greatest] = std::minmax_element(row.begin(), row.end());
    const float from = std::min(0.0F, *smallest);
    const float to = std::max(0.0F, *greatest);
    const float factor = from == to ? 1.0F : (kMost - kLeast) / (to - from);
    const float low = from * factor;
    const float high = to * factor;
    // From the end whose zero point is nearer to that of its range.
    const float ideal = (kLeast + low) + (kMost + high) > 0 ? kLeast - low : kMost - high;
    const float zero_point = std::nearbyint(std::clamp(ideal, kLeast, kMost));
    AppendRow(row, rows, [=](float value) {
      return static_cast<int16_t>(
          std::clamp(std::nearbyint(value * factor) + zero_point, kLeast, kMost));
    });
    rows.scales.push_back(factor != 0 ? 1.0F / factor : 0.0F);
    rows.zero_points.push_back(static_cast<int64_t>(zero_point));
  }
  return rows;
}

QuantizedRows Shifted(QuantizedRows rows, int shift) {
  for (int16_t& value : rows.values) value = static_cast<int16_t>(value + shift);
  for (int64_t& zero_point : rows.zero_points) zero_point += shift;
  return rows;
}

Fp8Rows QuantizeFp8(std::span<const float> x, uint64_t k) {
  constexpr float kLargest = 448.0F;
  constexpr float kSmallestScale = 0x1p-23F;
  Fp8Rows rows;
  for (uint64_t begin = 0; begin < x.size(); begin += k) {
    const std::span<const float> row = x.subspan(begin, k);
    const float scale = std::max(LargestMagnitude(row) / kLargest, kSmallestScale);
    const float inverse = 1.0F / scale;
    for (const float value : row) {
      rows.codes.push_back(ToE4M3(std::clamp(value * inverse, -kLargest, kLargest)));
    }
    rows.scales.push_back(scale);
  }
  return rows;
}

}  // namespace prepack
