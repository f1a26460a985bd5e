// How ggml quantizes activations: quantize_row_q8_0 and quantize_row_q8_1 of
// ggml-cpu/arch/x86/quants.c, quantize_row_q8_K_ref of ggml-quants.c.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "prepack/base/float_convert.h"
#include "prepack/gemm/model_ggml.h"

namespace prepack {
namespace {

constexpr uint64_t kQ8Block = 32;
constexpr uint64_t kQ8KBlock = 256;
constexpr float kMostQ8 = 127.0F;

float RoundedToF16(float value) {
  return F16ToF32(F32ToF16(value));
}

// The number that is furthest from zero, with its sign; of several the first.
float Furthest(std::span<const float> x) {
  float furthest = 0;
  for (const float value : x) {
    if (std::abs(value) > std::abs(furthest)) furthest = value;
  }
  return furthest;
}

// To the nearest integer, halves to even. |value| is below 2^22.
int16_t NearestInteger(float value) {
  constexpr float kShift = 0x1.8p23F;
  return static_cast<int16_t>((value + kShift) - kShift);
}

}  // namespace

std::string_view GgmlOperandName(GgmlOperand operand) {
  switch (operand) {
    case GgmlOperand::kF32:
      return "F32";
    case GgmlOperand::kF16:
      return "F16";
    case GgmlOperand::kBF16:
      return "BF16";
    case GgmlOperand::kQ8_0:
      return "Q8_0";
    case GgmlOperand::kQ8_1:
      return "Q8_1";
    case GgmlOperand::kQ8_K:
      return "Q8_K";
  }
  return "";
}

GgmlActivations::GgmlActivations(GgmlOperand operand, std::span<const float> x, uint64_t k)
    : operand_(operand), k_(k), m_(x.size() / k) {
  switch (operand) {
    case GgmlOperand::kF32:
      values_.assign(x.begin(), x.end());
      break;
    case GgmlOperand::kF16:
      values_.resize(x.size());
      std::ranges::transform(x, values_.begin(), RoundedToF16);
      break;
    case GgmlOperand::kBF16:
      values_.resize(x.size());
      std::ranges::transform(x, values_.begin(),
                             [](float value) { return BF16ToF32(F32ToBF16(value)); });
      break;
    case GgmlOperand::kQ8_0:
    case GgmlOperand::kQ8_1:
      blocks_ = k / kQ8Block;
      Quantize32(x);
      break;
    case GgmlOperand::kQ8_K:
      blocks_ = k / kQ8KBlock;
      Quantize256(x);
      break;
  }
}

// The integers are made with the scale as it was before it was rounded, and so is the sum.
void GgmlActivations::Quantize32(std::span<const float> x) {
  codes_.reserve(x.size());
  for (size_t first = 0; first < x.size(); first += kQ8Block) {
    const std::span block = x.subspan(first, kQ8Block);
    const float largest = std::abs(Furthest(block));
    const float inverse = largest == 0 ? 0 : kMostQ8 / largest;
    int sum = 0;
    for (const float value : block) {
      codes_.push_back(NearestInteger(value * inverse));
      sum += codes_.back();
    }
    const float scale = largest / kMostQ8;
    scales_.push_back(RoundedToF16(scale));
    if (operand_ == GgmlOperand::kQ8_1) {
      sums_.push_back(RoundedToF16(scale * static_cast<float>(sum)));
    }
  }
}

// The number that is furthest from zero becomes -127, whatever its sign.
void GgmlActivations::Quantize256(std::span<const float> x) {
  codes_.reserve(x.size());
  for (size_t first = 0; first < x.size(); first += kQ8KBlock) {
    const std::span block = x.subspan(first, kQ8KBlock);
    const float furthest = Furthest(block);
    if (furthest == 0) {
      codes_.resize(first + kQ8KBlock);
      scales_.push_back(0);
      continue;
    }
    const float inverse = -kMostQ8 / furthest;
    for (const float value : block) {
      codes_.push_back(std::min<int16_t>(NearestInteger(inverse * value), 127));
    }
    scales_.push_back(1 / inverse);
  }
}

void GgmlActivations::CopyRow(uint64_t row, std::span<double> columns) const {
  if (blocks_ == 0) {
    std::ranges::copy(values(row), columns.begin());
    return;
  }
  const uint64_t width = k_ / blocks_;
  const std::span<const int16_t> row_codes = codes(row);
  for (uint64_t block = 0; block < blocks_; ++block) {
    const auto scale = static_cast<double>(scales(row)[block]);
    const std::span meant = columns.subspan(block * width, width);
    std::ranges::transform(row_codes.subspan(block * width, width), meant.begin(),
                           [=](int16_t code) { return static_cast<double>(code) * scale; });
    if (sums_.empty()) continue;
    columns[k_ + block] =
        static_cast<double>(sums(row)[block]) - std::accumulate(meant.begin(), meant.end(), 0.0);
  }
}

}  // namespace prepack
