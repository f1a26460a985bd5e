// Turns statistics of a module into findings. Every message has the measured number and the bar, so
// that users can judge the judgement.

#include "prepack/check/judgement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/check/check.h"
#include "prepack/check/model_checks.h"
#include "prepack/formats/module_match.h"
#include "prepack/measure/code_windows.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void JudgeCodes(std::string_view where, const Scheme& scheme, const ModuleStatistics& statistics,
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

void JudgeZeroPoints(std::string_view where, const Scheme& scheme,
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

// Are those of the first two channels one and the same in the source?
bool SharesScales(const QuantizedLinear& linear) {
  const SourcePlaces* places = linear.places();
  return places != nullptr && linear.n() > 1 &&
         std::ranges::equal(places->WhereScale(0, 0), places->WhereScale(1, 0));
}

void JudgeScales(const QuantizedLinear& linear, const ModuleStatistics& statistics,
                 std::vector<Finding>& findings) {
  const std::string_view where = linear.module();
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
      fmt::format("are subnormal numbers with fewer than 8 significant bits; the smallest is {:g}",
                  statistics.min_scale));
  add("scale-outside-f16", statistics.scales_outside_f16, "become infinite or zero in f16");
  add("scale-negative", statistics.negative_scales, "are negative");
  // Scales that channels share are counted for each of them.
  if (statistics.scales / linear.scheme().scale_rows >= kMinGroups && statistics.ScalesAllEqual() &&
      !SharesScales(linear)) {
    findings.push_back(MakeFinding(
        "scale-constant", where,
        fmt::format("all {} scales are {:g}", statistics.scales, statistics.max_scale)));
  }
}

// The median exponent of the scales.
unsigned MedianExponent(const ModuleStatistics& statistics) {
  uint64_t below = 0;
  unsigned exponent = 0;
  for (; exponent < ByteCounts<uint64_t>::kValues; ++exponent) {
    below += statistics.scale_exponents[exponent];
    if (2 * below >= statistics.scales) break;
  }
  return exponent;
}

// Groups of zeros that have the scale of other weights.
uint64_t LostGroups(const ModuleStatistics& statistics) {
  const unsigned median = MedianExponent(statistics);
  uint64_t lost = 0;
  for (unsigned i = 0; i < ByteCounts<uint32_t>::kValues; ++i) {
    const bool ordinary =
        i + kOrdinaryScaleBelow >= median && i <= median + kOrdinaryScaleAbove && i != 0;
    if (ordinary) lost += statistics.windows.empty_scale_exponents[i];
  }
  // If most groups are zero, they determine the median.
  return 2 * lost < statistics.scales ? lost : 0;
}

bool IsLookedUp(std::string_view module) {
  return ClassOfModule(module) == ModuleClass::kEmbedding;
}

// Heads of keys and values are sometimes repeated on purpose, to use more devices; rows of an
// output head are alike if their tokens were never trained.
bool MayRepeatRows(std::string_view module) {
  for (const std::string_view part :
       {"k_proj", "v_proj", "qkv", "head", "embed", "query_key_value", "Wqkv", "c_attn"}) {
    if (module.find(part) != std::string_view::npos) return true;
  }
  return false;
}

void JudgeWindows(std::string_view where, const Scheme& scheme, const ModuleStatistics& statistics,
                  std::vector<Finding>& findings) {
  const WindowCounts& windows = statistics.windows;
  if (statistics.weights < kMinWeights || scheme.bits < 2) return;
  if (2 * windows.noisy_windows > windows.windows) {
    findings.push_back(
        MakeFinding("codes-unlike-weights", where,
                    fmt::format("{} of {} windows of {} codes are spread like noise",
                                windows.noisy_windows, windows.windows, kWindowCodes)));
    return;
  }
  std::vector<std::string> seen;
  const auto see = [&](uint64_t count, std::string_view what) {
    if (count != 0) seen.push_back(fmt::format("{} {}", count, what));
  };
  see(windows.shifted_windows, "windows of codes with a mean that weights do not have");
  see(windows.noisy_windows, "windows of codes that are spread like noise");
  see(windows.shifted_columns, "runs of input channels with a mean that weights do not have");
  see(windows.noisy_columns, "runs of input channels that are spread like noise");
  see(windows.constant_columns, "input channels with one code for all output channels");
  see(windows.repeated_columns, "runs of input channels that occur twice");
  if (!MayRepeatRows(where)) see(windows.RepeatedRows(), "output channels that occur twice");
  // The row of a token that pads is zero.
  if (!IsLookedUp(where)) {
    see(LostGroups(statistics), "groups of zeros under the scale of other weights");
  }
  if (seen.empty()) return;
  findings.push_back(MakeFinding("codes-damaged", where, fmt::format("{}", fmt::join(seen, "; "))));
}

void JudgeSpread(const QuantizedLinear& linear, const ModuleStatistics& statistics,
                 std::vector<Finding>& findings) {
  if (statistics.spread.groups < kMinSpreadGroups) return;
  // Powers of two: what a scale is rounded by goes into its codes, so that these follow the scale
  // whoever it belongs to, or do not.
  if (IsFloatCode(linear.scheme().code) && statistics.fine_scales == 0) return;
  const SpreadSums::Slope fit = statistics.spread.Fit();
  const bool by_place = !linear.reordered() && linear.groups() > 1;
  const double bar = by_place ? kUnrelatedSlope : kUnrelatedSlopeLoose;
  const double max_error = by_place ? kMaxSlopeError : kMaxSlopeErrorLoose;
  if (fit.slope < bar || fit.error > max_error) return;
  findings.push_back(
      MakeFinding("scale-unrelated", linear.module(),
                  fmt::format("scales change by 2^{:.2f} when the spread of their codes doubles "
                              "(2^-1 if they belong together, 2^0 if they do not)",
                              fit.slope)));
}

}  // namespace

void JudgeModule(const QuantizedLinear& linear, const ModuleStatistics& statistics,
                 std::vector<Finding>& findings) {
  const std::string_view where = linear.module();
  const Scheme& scheme = linear.scheme();
  const size_t before = findings.size();
  JudgeCodes(where, scheme, statistics, findings);
  const bool explained = findings.size() != before;
  JudgeZeroPoints(where, scheme, statistics, findings);
  JudgeScales(linear, statistics, findings);
  // If everything is wrong, do not report every part as well.
  if (!explained) {
    JudgeWindows(where, scheme, statistics, findings);
    JudgeSpread(linear, statistics, findings);
  }
  if (linear.zeros_may_borrow() && statistics.low_zero_points > 0) {
    findings.push_back(MakeFinding(
        "zero-point-borrowed", where,
        fmt::format("{} zero points of 0 are stored as -1, which borrows from their neighbours; "
                    "prepack read them as the whole words that the writer subtracted",
                    statistics.low_zero_points)));
  }
  if (statistics.stray_bits == 0) return;
  findings.push_back(
      MakeFinding("padding-not-zero", where,
                  fmt::format("{} bits of the padding are set", statistics.stray_bits)));
}

namespace {

double SizeOf(const ModuleCheck& module) {
  if (!module.figures || module.weights() < kMinWeights) return 0;
  // Models multiply what they look up by what they like.
  if (IsLookedUp(module.module)) return 0;
  return module.figures->root_mean_square * std::sqrt(static_cast<double>(module.k));
}

void JudgeSizes(std::vector<ModuleCheck>& modules) {
  struct Peers {
    std::vector<double> sizes;
    double median = 0;
  };
  std::map<std::string, Peers, std::less<>> peers;
  for (const ModuleCheck& module : modules) {
    if (const double size = SizeOf(module); size > 0) {
      peers[RoleOf(module.module)].sizes.push_back(size);
    }
  }
  // Once for all of them: there may be tens of thousands of experts.
  for (auto& [role, of_role] : peers) of_role.median = Median(of_role.sizes);
  for (ModuleCheck& module : modules) {
    const double size = SizeOf(module);
    if (size <= 0) continue;  // weights of zero are reported elsewhere
    if (size > kLargestSize || size < kSmallestSize) {
      module.findings.push_back(
          MakeFinding("weights-size", module.module,
                      fmt::format("the rms of the weights times the root of K is {:.3g} ({} to {} "
                                  "in working models)",
                                  size, kSmallestSize, kLargestSize)));
      continue;
    }
    const Peers& others = peers[RoleOf(module.module)];
    if (others.sizes.size() < kMinSizePeers) continue;
    const double ratio = size / others.median;
    if (ratio < kPeerSize && ratio > 1 / kPeerSize) continue;
    module.findings.push_back(
        MakeFinding("weights-unlike-peers", module.module,
                    fmt::format("the rms of the weights is {:.3g} times the median of its {} peers",
                                ratio, others.sizes.size())));
  }
}

// A module whose numbers are those of another one, which is the first with them.
struct Copy {
  size_t module = 0;
  size_t original = 0;
};

// By a hash of numbers, and K; ascending by module. `hash_of` returns none for modules that are not
// compared.
template <typename HashOf>
std::vector<Copy> CopiesBy(const std::vector<ModuleCheck>& modules, const HashOf& hash_of) {
  using Key = std::pair<uint64_t, uint64_t>;
  std::vector<std::pair<Key, size_t>> keys;
  keys.reserve(modules.size());
  for (size_t i = 0; i < modules.size(); ++i) {
    if (const std::optional<uint64_t> hash = hash_of(modules[i])) {
      keys.push_back({{*hash, modules[i].k}, i});
    }
  }
  std::ranges::sort(keys);
  std::vector<Copy> copies;
  for (size_t i = 1, first = 0; i < keys.size(); ++i) {
    if (keys[i].first != keys[first].first) {
      first = i;
    } else {
      copies.push_back({.module = keys[i].second, .original = keys[first].second});
    }
  }
  std::ranges::sort(copies, {}, &Copy::module);
  return copies;
}

void FindCopies(const std::vector<ModuleCheck>& modules, std::vector<Finding>& findings) {
  const std::vector<Copy> copies =
      CopiesBy(modules, [](const ModuleCheck& module) -> std::optional<uint64_t> {
        if (!module.figures || module.weights() < kMinWeights) return std::nullopt;
        if (module.figures->commonest_fraction > kConstantCodes) return std::nullopt;
        return module.figures->codes_hash;
      });
  if (copies.empty()) return;
  Finding finding =
      MakeFinding("module-copied", modules[copies.front().module].module,
                  fmt::format("the same codes as {}", modules[copies.front().original].module));
  finding.more = copies.size() - 1;
  findings.push_back(std::move(finding));
}

// Scales of another module: the same number of scales, all of them equal. If the codes are equal as
// well, the module is a copy.
void FindCopiedScales(std::vector<ModuleCheck>& modules) {
  const std::vector<Copy> copies =
      CopiesBy(modules, [](const ModuleCheck& module) -> std::optional<uint64_t> {
        if (!module.figures) return std::nullopt;
        if (module.figures->fine_scales < kMinGroups * module.scheme->scale_rows) {
          return std::nullopt;
        }
        return module.figures->scales_hash;
      });
  for (const Copy& copy : copies) {
    ModuleCheck& module = modules[copy.module];
    const ModuleCheck& original = modules[copy.original];
    if (original.figures->codes_hash == module.figures->codes_hash) continue;
    module.findings.push_back(
        MakeFinding("scale-copied", module.module,
                    fmt::format("all {} scales are equal to those of {}, but the codes differ",
                                module.figures->scales, original.module)));
  }
}

}  // namespace

void JudgeModel(std::vector<ModuleCheck>& modules, std::vector<Finding>& findings) {
  JudgeSizes(modules);
  FindCopies(modules, findings);
  FindCopiedScales(modules);
}

}  // namespace prepack
