#include "check/model_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "check/finding_list.h"
#include "check/median.h"
#include "check/model_layout.h"
#include "check/module_judgement.h"

namespace prepack {
namespace {

constexpr std::array<std::array<std::string_view, 3>, 2> kSiblings = {
    {{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj", ""}}};

double SizeOf(const ModuleCheck& module) {
  if (!module.statistics || module.statistics->weights < kMinWeights) return 0;
  return module.statistics->RootMeanSquare() * std::sqrt(static_cast<double>(module.k));
}

void JudgeSizes(std::vector<ModuleCheck>& modules) {
  std::map<std::string, std::vector<double>, std::less<>> peers;
  for (const ModuleCheck& module : modules) {
    if (const double size = SizeOf(module); size > 0) peers[RoleOf(module.module)].push_back(size);
  }
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
    const std::vector<double>& others = peers[RoleOf(module.module)];
    if (others.size() < kMinSizePeers) continue;
    const double ratio = size / Median(others);
    if (ratio < kPeerSize && ratio > 1 / kPeerSize) continue;
    module.findings.push_back(
        MakeFinding("weights-unlike-peers", module.module,
                    fmt::format("the rms of the weights is {:.3g} times the median of its {} peers",
                                ratio, others.size())));
  }
}

void FindCopies(const std::vector<ModuleCheck>& modules, std::vector<Finding>& findings) {
  std::map<std::pair<uint64_t, uint64_t>, const ModuleCheck*> first;  // by hash and K
  uint64_t copies = 0;
  const ModuleCheck* copy = nullptr;
  const ModuleCheck* original = nullptr;
  for (const ModuleCheck& module : modules) {
    if (!module.statistics || module.statistics->weights < kMinWeights ||
        module.statistics->CommonestFraction() > kConstantCodes) {
      continue;
    }
    const auto [it, added] =
        first.try_emplace({module.statistics->windows.codes_hash, module.k}, &module);
    if (added) continue;
    if (copies++ == 0) {
      copy = &module;
      original = it->second;
    }
  }
  if (copies == 0) return;
  Finding finding = MakeFinding("module-copied", copy->module,
                                fmt::format("the same codes as {}", original->module));
  finding.more = copies - 1;
  findings.push_back(std::move(finding));
}

// An order in which input channels may lie: place i of each eight holds channel order[i], after all
// have moved by `moved`.
struct ChannelOrder {
  std::string_view name;
  std::array<uint8_t, 8> order;
  size_t moved = 0;
};

constexpr std::array<uint8_t, 8> kInOrder = {0, 1, 2, 3, 4, 5, 6, 7};
// For moves to the left.
constexpr size_t kBack = size_t{0} - 1;

constexpr std::array<ChannelOrder, 10> kOrders = {{
    {"as stored", kInOrder},
    {"reversed by eights", {7, 6, 5, 4, 3, 2, 1, 0}},
    {"reversed by fours", {3, 2, 1, 0, 7, 6, 5, 4}},
    {"swapped in pairs", {1, 0, 3, 2, 5, 4, 7, 6}},
    {"interleaved as AWQ does", {0, 2, 4, 6, 1, 3, 5, 7}},
    {"interleaved the other way", {0, 4, 1, 5, 2, 6, 3, 7}},
    {"moved by one", kInOrder, 1},
    {"moved back by one", kInOrder, kBack},
    {"moved by eight", kInOrder, 8},
    {"moved back by eight", kInOrder, 8 * kBack},
}};

// Of ln a and ln b in an order, over whole eights of channels with weights.
double Correlation(const std::vector<float>& a, const std::vector<float>& b,
                   const ChannelOrder& order) {
  double count = 0;
  double sum_a = 0;
  double sum_b = 0;
  double squares_a = 0;
  double squares_b = 0;
  double products = 0;
  for (size_t i = 0; i + 8 <= a.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) {
      const float left = a[i + j];
      // Unsigned arithmetic wraps, as the channels do.
      const float right = b[(i + order.order[j] + order.moved + b.size()) % b.size()];
      if (!(left > 0 && right > 0)) continue;
      const double x = std::log(left);
      const double y = std::log(right);
      ++count;
      sum_a += x;
      sum_b += y;
      squares_a += x * x;
      squares_b += y * y;
      products += x * y;
    }
  }
  if (count < 2) return 0;
  const double variances =
      (squares_a - sum_a * sum_a / count) * (squares_b - sum_b * sum_b / count);
  return variances > 0 ? (products - sum_a * sum_b / count) / std::sqrt(variances) : 0;
}

// The order in which b goes with a, if it is not the stored one.
std::optional<std::string> OtherOrder(const std::vector<float>& a, const std::vector<float>& b) {
  const double deviation = 1 / std::sqrt(static_cast<double>(a.size()));
  const double stored = Correlation(a, b, kOrders[0]);
  const ChannelOrder* best = nullptr;
  double highest = std::max({kOrderCorrelation, kOrderDeviations * deviation, stored + kOrderGain});
  for (size_t i = 1; i < kOrders.size(); ++i) {
    const double correlation = Correlation(a, b, kOrders[i]);
    if (correlation < highest) continue;
    highest = correlation;
    best = &kOrders[i];
  }
  if (best == nullptr) return std::nullopt;
  return fmt::format("they go together as stored by {:.2f}, and {} by {:.2f}", stored, best->name,
                     highest);
}

void JudgeOrders(std::vector<ModuleCheck>& modules,
                 const std::vector<std::vector<float>>& energies) {
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (i < energies.size() && !energies[i].empty()) places.emplace(modules[i].module, i);
  }
  for (const auto& [name, place] : places) {
    const std::string_view leaf = LeafName(name);
    for (const auto& set : kSiblings) {
      if (set[0] != leaf) continue;
      const std::string_view parent = name.substr(0, name.size() - leaf.size());
      for (size_t i = 1; i < set.size() && !set[i].empty(); ++i) {
        const auto sibling = places.find(fmt::format("{}{}", parent, set[i]));
        if (sibling == places.end() || modules[sibling->second].k != modules[place].k) continue;
        const auto other = OtherOrder(energies[place], energies[sibling->second]);
        if (!other) continue;
        modules[sibling->second].findings.push_back(
            MakeFinding("codes-unlike-weights", sibling->first,
                        fmt::format("its input channels lie in another order than those of {}: {}",
                                    leaf, *other)));
      }
    }
  }
}

}  // namespace

bool HasSiblings(std::string_view module) {
  // Thousands of experts would take much memory, and routed inputs tell less.
  if (module.find(".experts.") != std::string_view::npos) return false;
  const std::string_view leaf = LeafName(module);
  return std::ranges::any_of(
      kSiblings, [&](const auto& set) { return std::ranges::find(set, leaf) != set.end(); });
}

void JudgeModel(std::vector<ModuleCheck>& modules, const std::vector<std::vector<float>>& energies,
                std::vector<Finding>& findings) {
  JudgeSizes(modules);
  FindCopies(modules, findings);
  JudgeOrders(modules, energies);
}

}  // namespace prepack
