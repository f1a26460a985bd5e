#include "diff/report_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace prepack {
namespace {

constexpr std::array kVerdicts = {DiffVerdict::kIdentical, DiffVerdict::kEqual,
                                  DiffVerdict::kDifferent, DiffVerdict::kShapeDiffers,
                                  DiffVerdict::kOnlyInA,   DiffVerdict::kOnlyInB};

template <typename Items, typename VerdictOf>
std::string CountsText(const Items& items, VerdictOf verdict_of) {
  std::string text;
  for (const DiffVerdict verdict : kVerdicts) {
    const auto count = std::ranges::count(items, verdict, verdict_of);
    if (count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, DiffVerdictName(verdict));
  }
  return text.empty() ? "none" : text;
}

DiffVerdict VerdictOf(const TensorDiff& diff) {
  return diff.differences.verdict;
}

}  // namespace

std::string ModuleVerdicts(const DiffReport& report) {
  return CountsText(report.modules, &ModuleDiff::verdict);
}

std::string TensorVerdicts(const DiffReport& report) {
  return CountsText(report.tensors, VerdictOf);
}

std::string CheckpointText(const std::string& path, const std::string& format) {
  return fmt::format("{} ({})", path, format.empty() ? "not quantized" : format);
}

std::string SideText(const std::optional<DiffSide>& side) {
  if (!side) return "-";
  return fmt::format("{} [{}]", side->description,
                     fmt::join(side->shape.begin(), side->shape.end(), ", "));
}

std::string DifferenceText(double difference) {
  return difference == 0 ? "0" : fmt::format("{:.3g}", difference);
}

std::string SqnrText(const WeightDifferences& differences) {
  const std::optional<double> sqnr = differences.SqnrDb();
  return sqnr && std::isfinite(*sqnr) ? fmt::format("{:.1f}", *sqnr) : "-";
}

}  // namespace prepack
