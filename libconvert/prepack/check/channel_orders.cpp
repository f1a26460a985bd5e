// Ranks the energies of input channels, and looks for one of the known wrong orders under which two
// modules that read the same hidden state agree.

#include "prepack/check/channel_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "prepack/check/check.h"
#include "prepack/check/model_checks.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

constexpr std::array<ChannelOrder, 18> kWrongOrders = {{
    {.name = "reversed by eights", .block = 8, .places = {7, 6, 5, 4, 3, 2, 1, 0}},
    {.name = "reversed by fours", .block = 4, .places = {3, 2, 1, 0}},
    {.name = "reversed by sixteens",
     .block = 16,
     .places = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
    {.name = "reversed in pairs by eights",
     .block = 16,
     .places = {14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1}},
    {.name = "swapped in pairs", .block = 2, .places = {1, 0}},
    {.name = "swapped by twos", .block = 4, .places = {2, 3, 0, 1}},
    {.name = "interleaved as AWQ does", .block = 8, .places = {0, 2, 4, 6, 1, 3, 5, 7}},
    {.name = "interleaved the other way", .block = 8, .places = {0, 4, 1, 5, 2, 6, 3, 7}},
    {.name = "interleaved in pairs",
     .block = 16,
     .places = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}},
    {.name = "moved by half of them", .by_half = true},
    {.name = "moved by one", .moved = 1},
    {.name = "moved back by one", .moved = -1},
    {.name = "moved by four", .moved = 4},
    {.name = "moved back by four", .moved = -4},
    {.name = "moved by eight", .moved = 8},
    {.name = "moved back by eight", .moved = -8},
    {.name = "moved by sixteen", .moved = 16},
    {.name = "moved back by sixteen", .moved = -16},
}};

class Correlation {
 public:
  void Add(double x, double y) {
    ++count_;
    sum_x_ += x;
    sum_y_ += y;
    squares_x_ += x * x;
    squares_y_ += y * y;
    products_ += x * y;
  }
  double Value() const {
    if (count_ < 2) return 0;
    const double variances =
        (squares_x_ - sum_x_ * sum_x_ / count_) * (squares_y_ - sum_y_ * sum_y_ / count_);
    return variances > 0 ? (products_ - sum_x_ * sum_y_ / count_) / std::sqrt(variances) : 0;
  }

 private:
  double count_ = 0;
  double sum_x_ = 0;
  double sum_y_ = 0;
  double squares_x_ = 0;
  double squares_y_ = 0;
  double products_ = 0;
};

}  // namespace

std::span<const ChannelOrder> WrongOrders() {
  return kWrongOrders;
}

std::vector<uint32_t> PlacesOf(const ChannelOrder& order, size_t count) {
  std::vector<uint32_t> places(count);
  std::iota(places.begin(), places.end(), 0U);
  if (order.block > 1) {
    for (size_t i = 0; i < count / order.block * order.block; ++i) {
      places[i] = static_cast<uint32_t>(i - i % order.block + order.places[i % order.block]);
    }
    return places;
  }
  const auto size = static_cast<ptrdiff_t>(count);
  if (size == 0) return places;
  const ptrdiff_t by = order.by_half ? size / 2 : order.moved;
  std::rotate(places.begin(), places.begin() + ((by % size) + size) % size, places.end());
  return places;
}

std::vector<float> RanksOf(std::span<const float> values) {
  std::vector<uint32_t> sorted(values.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::ranges::stable_sort(sorted, {}, [&](uint32_t i) { return values[i]; });
  std::vector<float> ranks(values.size());
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && values[sorted[end]] == values[sorted[i]]) ++end;
    const float rank = static_cast<float>(i + end - 1) / 2;
    for (; i < end; ++i) ranks[sorted[i]] = rank;
  }
  return ranks;
}

MovedCorrelation CorrelateMoved(std::span<const float> a, std::span<const float> b,
                                std::span<const uint32_t> places) {
  Correlation stored;
  Correlation moved;
  size_t count = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == i) continue;
    ++count;
    stored.Add(a[i], b[i]);
    moved.Add(a[i], b[places[i]]);
  }
  return {.stored = stored.Value(), .moved = moved.Value(), .count = count};
}

double Correlate(std::span<const float> a, std::span<const float> b) {
  Correlation correlation;
  for (size_t i = 0; i < a.size(); ++i) correlation.Add(a[i], b[i]);
  return correlation.Value();
}

namespace {

constexpr std::array<std::array<std::string_view, 3>, 2> kSiblings = {
    {{"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj", ""}}};

constexpr size_t kMinOfPlace = 8;

struct Sibling {
  ModuleCheck* module = nullptr;
  std::vector<float> ranks;
};

// The order in which the channels of b match those of a, if that is not the stored order.
std::optional<std::string> OtherOrder(const Sibling& a, const Sibling& b) {
  std::optional<std::string> found;
  double highest = 0;
  for (const ChannelOrder& order : WrongOrders()) {
    const MovedCorrelation by = CorrelateMoved(a.ranks, b.ranks, PlacesOf(order, a.ranks.size()));
    const double moved = std::abs(by.moved);
    const double stored = std::abs(by.stored);
    const double deviation = 1 / std::sqrt(static_cast<double>(std::max<size_t>(by.count, 1)));
    const double bar =
        std::max({kOrderCorrelation, kOrderDeviations * deviation, stored + kOrderGain, highest});
    if (moved <= bar) continue;
    highest = moved;
    found = fmt::format("they correlate by {:.2f} as stored, but {} by {:.2f}", by.stored,
                        order.name, by.moved);
  }
  return found;
}

void JudgeSet(std::vector<Sibling>& set) {
  struct Pair {
    size_t a = 0;
    size_t b = 0;
    std::string message;
  };
  std::vector<Pair> found;
  std::array<size_t, 3> times{};
  for (size_t a = 0; a < set.size(); ++a) {
    for (size_t b = a + 1; b < set.size(); ++b) {
      if (set[a].ranks.size() != set[b].ranks.size()) continue;
      std::optional<std::string> message = OtherOrder(set[a], set[b]);
      if (!message) continue;
      ++times[a];
      ++times[b];
      found.push_back({.a = a, .b = b, .message = std::move(*message)});
    }
  }
  if (found.empty()) return;
  // The module that matches the fewest others; the last one if several match equally few.
  size_t odd = 0;
  for (size_t i = 1; i < set.size(); ++i) {
    if (times[i] >= times[odd]) odd = i;
  }
  for (const Pair& pair : found) {
    if (pair.a != odd && pair.b != odd) continue;
    const Sibling& other = set[pair.a == odd ? pair.b : pair.a];
    set[odd].module->findings.push_back(
        MakeFinding("codes-unlike-weights", set[odd].module->module,
                    fmt::format("its input channels lie in another order than those of {}: {}",
                                LastPart(other.module->module), pair.message)));
    return;
  }
}

// A word of codes starts at every multiple of this.
size_t WordPlaces(unsigned bits) {
  return 32 % bits == 0 ? 32 / bits : 32;
}

// Whether the energies of input channels depend on their place in a word.
std::optional<std::string> UnevenPlaces(const std::vector<float>& energies, size_t places) {
  std::vector<std::vector<double>> of_place(places);
  Moments<double> all_energies;
  for (size_t i = 0; i < energies.size(); ++i) {
    if (!(energies[i] > 0)) continue;
    const double energy = std::log(energies[i]);
    of_place[i % places].push_back(energy);
    all_energies.Add(energy);
  }
  if (std::ranges::any_of(of_place, [](const auto& all) { return all.size() < kMinOfPlace; })) {
    return std::nullopt;
  }
  // The standard error of a median, from the deviation of all values.
  const double error =
      1.25 * all_energies.Deviation() / std::sqrt(all_energies.count / static_cast<double>(places));
  double lowest = Median(of_place[0]);
  double highest = lowest;
  for (const std::vector<double>& all : of_place) {
    const double median = Median(all);
    lowest = std::min(lowest, median);
    highest = std::max(highest, median);
  }
  if (highest - lowest <= std::max(kPlaceGain, kPlaceErrors * error)) return std::nullopt;
  return fmt::format(
      "its input channels at some places of a word are {:.1f} times as strong as those at others",
      std::exp((highest - lowest) / 2));
}

}  // namespace

bool HasSiblings(std::string_view module) {
  // Thousands of experts would take much memory, and routed inputs tell less.
  if (module.find(".experts.") != std::string_view::npos) return false;
  const std::string_view leaf = LastPart(module);
  return std::ranges::any_of(
      kSiblings, [&](const auto& set) { return std::ranges::find(set, leaf) != set.end(); });
}

std::vector<float> ColumnEnergies(const Scheme& scheme, uint64_t k, uint64_t rows,
                                  const RowNumbers& numbers, const InputOrder& order) {
  const std::array<float, 256>& values = CodeValues(scheme.code);
  const uint64_t groups = CeilDiv(k, scheme.group_size);
  std::vector<float> energies(k, 0);
  std::vector<float> offsets(k);  // of the groups of a row, repeated for their codes
  std::vector<float> factors(k);
  ForPanelRows(numbers.codes, rows, [&](uint64_t row, std::span<const std::byte> codes) {
    for (uint64_t g = 0; g < groups; ++g) {
      const auto begin = static_cast<ptrdiff_t>(g * scheme.group_size);
      const auto end = static_cast<ptrdiff_t>(std::min(k, (g + 1) * scheme.group_size));
      const float scale = numbers.scales[row * groups + g];
      std::fill(factors.begin() + begin, factors.begin() + end, scale * scale);
      std::fill(offsets.begin() + begin, offsets.begin() + end,
                static_cast<float>(numbers.zero_points[row * groups + g]));
    }
    ForRowCodes(scheme.code, codes, k, [&](uint64_t i, unsigned code) {
      const float value = values[code] - offsets[i];
      energies[i] += value * value * factors[i];
    });
  });
  if (order.empty()) return energies;
  std::vector<float> ordered(k);
  for (uint64_t i = 0; i < k; ++i) ordered[order[i]] = energies[i];
  return ordered;
}

void JudgeSiblings(std::vector<ModuleCheck>& modules,
                   const std::vector<std::vector<float>>& energies) {
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (i >= energies.size() || energies[i].empty()) continue;
    places.emplace(modules[i].module, i);
    const std::optional<std::string> uneven =
        UnevenPlaces(energies[i], WordPlaces(modules[i].scheme->bits));
    if (!uneven) continue;
    modules[i].findings.push_back(MakeFinding("codes-unlike-weights", modules[i].module, *uneven));
  }
  for (const auto& [name, place] : places) {
    const std::string_view leaf = LastPart(name);
    const std::string_view parent = name.substr(0, name.size() - leaf.size());
    for (const auto& set : kSiblings) {
      if (set[0] != leaf) continue;
      std::vector<Sibling> siblings;
      for (const std::string_view other : set) {
        const auto found = places.find(fmt::format("{}{}", parent, other));
        if (other.empty() || found == places.end()) continue;
        siblings.push_back(
            {.module = &modules[found->second], .ranks = RanksOf(energies[found->second])});
      }
      // One of them may already have been reported.
      const bool judged = std::ranges::any_of(siblings, [](const Sibling& sibling) {
        return std::ranges::any_of(sibling.module->findings, [](const Finding& finding) {
          return finding.id == "codes-unlike-weights";
        });
      });
      if (!judged) JudgeSet(siblings);
    }
  }
}

}  // namespace prepack
