#include "check/module_judgement.h"

#include <fmt/format.h>

#include <string_view>

#include "canonical/dequantize.h"
#include "check/finding_list.h"

namespace prepack {
namespace {

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void JudgeCodes(const std::string& where, const Scheme& scheme, const ModuleStatistics& statistics,
                std::vector<Finding>& findings) {
  if (statistics.weights < kMinWeights) return;
  if (statistics.CommonestFraction() > kConstantCodes) {
    findings.push_back(MakeFinding(
        "codes-constant", where,
        fmt::format("{:.2f} % of the codes are {}", 100 * statistics.CommonestFraction(),
                    CodeValues(scheme.code)[statistics.CommonestCode()])));
    return;
  }
  const double saturated = statistics.SaturatedFraction(scheme);
  if (scheme.bits >= kMinSaturationBits && scheme.group_size >= kMinSaturationGroup &&
      saturated > kSaturatedCodes) {
    findings.push_back(MakeFinding(
        "codes-saturated", where,
        fmt::format("{:.1f} % of the codes are at the ends of their range (at most {:.0f} % in a "
                    "sound module)",
                    100 * saturated, 100 * kSaturatedCodes)));
  }
  if (scheme.bits >= kMinShiftBits && statistics.weights >= kMinShiftWeights &&
      statistics.MeanShift() > kMeanShift) {
    findings.push_back(
        MakeFinding("weights-shifted", where,
                    fmt::format("the mean of the weights is {:.2f} of their rms (at most {} in a "
                                "sound module)",
                                statistics.MeanShift(), kMeanShift)));
  }
}

void JudgeZeroPoints(const std::string& where, const Scheme& scheme,
                     const ModuleStatistics& statistics, std::vector<Finding>& findings) {
  if (statistics.zero_points < kMinGroups || scheme.bits < kMinZeroPointBits) return;
  const auto judge = [&](uint64_t count, unsigned rail) {
    const double share = Share(count, statistics.zero_points);
    if (share <= kRailZeroPoints) return;
    findings.push_back(
        MakeFinding("zero-point-at-rail", where,
                    fmt::format("{:.1f} % of the zero points are {}, an end of their range",
                                100 * share, rail)));
  };
  judge(statistics.low_zero_points, 0);
  judge(statistics.high_zero_points, (1U << scheme.bits) - 1);
}

void JudgeScales(const std::string& where, const Scheme& scheme, const ModuleStatistics& statistics,
                 std::vector<Finding>& findings) {
  const auto add = [&](FindingId id, uint64_t count, std::string_view what) {
    if (count == 0) return;
    findings.push_back(
        MakeFinding(id, where, fmt::format("{} of {} scales {}", count, statistics.scales, what)));
  };
  // Readers refuse a scale of zero whose group has weights.
  add("scale-zero-empty", statistics.zero_scales,
      "are zero, and so are the weights of their groups");
  add("scale-huge", statistics.huge_scales,
      fmt::format("are above {}; the largest is {:g}", kHugeScale, statistics.max_scale));
  add("scale-imprecise", statistics.imprecise_scales,
      fmt::format("are subnormal numbers of fewer than 8 bits; the smallest is {:g}",
                  statistics.min_scale));
  add("scale-outside-f16", statistics.scales_outside_f16, "become infinite or zero in f16");
  add("scale-negative", statistics.negative_scales, "are negative");
  // Scales that channels share are counted for each of them.
  if (statistics.scales / scheme.scale_rows >= kMinGroups && statistics.ScalesAllEqual()) {
    findings.push_back(MakeFinding(
        "scale-constant", where,
        fmt::format("all {} scales are {:g}", statistics.scales, statistics.max_scale)));
  }
}

}  // namespace

void JudgeModule(const QuantizedLinear& linear, const ModuleStatistics& statistics,
                 std::vector<Finding>& findings) {
  const std::string& where = linear.module();
  const Scheme& scheme = linear.scheme();
  JudgeCodes(where, scheme, statistics, findings);
  JudgeZeroPoints(where, scheme, statistics, findings);
  JudgeScales(where, scheme, statistics, findings);
  if (linear.zeros_may_borrow() && statistics.low_zero_points > 0) {
    findings.push_back(MakeFinding(
        "zero-point-borrowed", where,
        fmt::format("{} zero points of 0 are stored as -1, which borrows from their neighbours; "
                    "they were read as the whole words that the writer subtracted",
                    statistics.low_zero_points)));
  }
  if (statistics.stray_bits == 0) return;
  findings.push_back(MakeFinding("padding-not-zero", where,
                                 fmt::format("{} bits are set in padding", statistics.stray_bits)));
}

}  // namespace prepack
