// Histograms and ranges of the numbers of one module.

#include "prepack/inspect/summary.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/inspect/weight_values.h"
#include "prepack/model/dequantized_linear.h"

namespace prepack {
namespace {

// Maps floats (not NaN) to integers with the same order.
uint32_t OrderedBits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}

float FromOrderedBits(uint32_t bits) {
  return std::bit_cast<float>(bits >> 31 != 0 ? bits & 0x7FFFFFFFU : ~bits);
}

// Finds one of very many floats by its rank, in a fixed amount of memory: counting by the upper
// half of the bits tells which floats to count by the lower half.
class RankedFloats {
 public:
  void CountUpper(float value) { ++upper_[OrderedBits(value) >> 16]; }
  // Call this when all floats have been counted.
  void Choose(uint64_t rank) {
    rank_ = rank;
    while (rank_ >= upper_[chosen_]) rank_ -= upper_[chosen_++];
  }
  void CountLower(float value) {
    const uint32_t bits = OrderedBits(value);
    if (bits >> 16 == chosen_) ++lower_[bits & 0xFFFFU];
  }
  // Call this when all floats have been counted again.
  float Chosen() const {
    uint32_t lower = 0;
    for (uint64_t rank = rank_; rank >= lower_[lower]; ++lower) rank -= lower_[lower];
    return FromOrderedBits(chosen_ << 16 | lower);
  }

 private:
  std::vector<uint64_t> upper_ = std::vector<uint64_t>(1U << 16);
  std::vector<uint64_t> lower_ = std::vector<uint64_t>(1U << 16);
  uint64_t rank_ = 0;
  uint32_t chosen_ = 0;
};

// Calls `work(n0, rows)` for some output channels at a time, until it fails.
template <typename Work>
Status ForPanels(const ShownModule& module, const Work& work) {
  const uint64_t panel = module.PanelRows();
  for (uint64_t n0 = 0; n0 < module.n; n0 += panel) {
    PREPACK_TRY(work(n0, std::min(panel, module.n - n0)));
  }
  return {};
}

// Calls `work` with every scale of channels [n0, …) that the previous channel does not share.
template <typename Work>
void ForScales(const ShownModule& module, uint64_t n0, const std::vector<float>& scales,
               const Work& work) {
  const uint64_t groups = module.groups();
  for (uint64_t row = 0; row < scales.size() / groups; ++row) {
    if ((n0 + row) % module.scheme().scale_rows != 0) continue;
    for (uint64_t g = 0; g < groups; ++g) work(scales[row * groups + g]);
  }
}

class Measuring {
 public:
  explicit Measuring(const ShownModule& module) : module_(module) {}

  Result<ModuleNumbers> Run() {
    Status status =
        ForPanels(module_, [&](uint64_t n0, uint64_t rows) { return AddPanel(n0, rows); });
    if (status.ok() && HasCodes()) status = FindMedian();
    if (!status.ok()) return status;
    ModuleNumbers numbers{.scheme = module_.scheme(),
                          .n = module_.n,
                          .k = module_.k,
                          .reordered = module_.reordered(),
                          .min_weight = min_weight_,
                          .max_weight = max_weight_};
    if (!HasCodes()) return numbers;
    numbers.codes = statistics_.histogram.All();
    numbers.scales = scales_;
    if (!module_.scheme().symmetric) numbers.zero_points = zero_points_;
    return numbers;
  }

 private:
  bool HasCodes() const { return module_.scheme().code != CodeType::kBF16; }

  Status AddPanel(uint64_t n0, uint64_t rows) {
    PREPACK_TRY(module_.ReadRows(n0, rows, numbers_));
    if (!HasCodes()) {
      for (uint64_t i = 0; i < rows * module_.k; ++i) {
        const float weight = BF16ToF32(PanelBits(CodeType::kBF16, numbers_.codes, module_.k, 0, i));
        AddRange(weight, weight);
      }
      return {};
    }
    CountRows(module_.scheme(), module_.stored_scale_dtype(), module_.k, rows,
              numbers_.Rows(0, rows, rows), statistics_);
    AddScales(n0);
    if (!module_.scheme().symmetric) {
      for (const uint8_t zero_point : numbers_.zero_points) ++zero_points_[zero_point];
    }
    for (uint64_t row = 0; row < rows; ++row) AddRow(row);
    return {};
  }

  void AddRange(float low, float high) {
    min_weight_ = std::min({min_weight_, low, high});
    max_weight_ = std::max({max_weight_, low, high});
  }

  void AddScales(uint64_t n0) {
    ForScales(module_, n0, numbers_.scales, [&](float scale) {
      scales_.min = scales_.count == 0 ? scale : std::min(scales_.min, scale);
      scales_.max = scales_.count == 0 ? scale : std::max(scales_.max, scale);
      ++scales_.count;
      scales_.zero += scale == 0 ? 1 : 0;
      scales_.negative += scale < 0 ? 1 : 0;
      ranked_.CountUpper(scale);
    });
  }

  // The extreme weights of every group, from its extreme codes: rounding keeps their order.
  void AddRow(uint64_t row) {
    const Scheme& scheme = module_.scheme();
    const std::array<float, 256>& values = CodeValues(scheme.code);
    const uint64_t groups = module_.groups();
    for (uint64_t g = 0; g < groups; ++g) {
      float low = std::numeric_limits<float>::infinity();
      float high = -low;
      const uint64_t end = std::min(module_.k, (g + 1) * scheme.group_size);
      for (uint64_t j = g * scheme.group_size; j < end; ++j) {
        const float value = values[PanelCode(scheme.code, numbers_.codes, module_.k, row, j)];
        low = std::min(low, value);
        high = std::max(high, value);
      }
      const auto zero_point = static_cast<float>(numbers_.zero_points[row * groups + g]);
      const float scale = numbers_.scales[row * groups + g];
      AddRange((low - zero_point) * scale, (high - zero_point) * scale);
    }
  }

  Status FindMedian() {
    ranked_.Choose((scales_.count - 1) / 2);
    Status status = ForPanels(module_, [&](uint64_t n0, uint64_t rows) {
      PREPACK_TRY(module_.ReadScales(n0, rows, numbers_.scales));
      ForScales(module_, n0, numbers_.scales, [&](float scale) { ranked_.CountLower(scale); });
      return Status();
    });
    if (status.ok()) scales_.median = ranked_.Chosen();
    return status;
  }

  const ShownModule& module_;
  StatisticsBuffers numbers_;
  ModuleStatistics statistics_;
  ScaleNumbers scales_;
  RankedFloats ranked_;
  std::array<uint64_t, 256> zero_points_{};
  float min_weight_ = std::numeric_limits<float>::infinity();
  float max_weight_ = -std::numeric_limits<float>::infinity();
};

}  // namespace

Result<ModuleNumbers> MeasureModule(const OpenedFolder& folder, std::string_view module) {
  PREPACK_TRY_ASSIGN(const ShownModule shown, FindShown(folder, module));
  return Measuring(shown).Run();
}

}  // namespace prepack
