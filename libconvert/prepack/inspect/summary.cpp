// Groups modules whose names differ only in numbers, which makes one line of thousands of experts.

#include "prepack/inspect/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "prepack/report/charts.h"

namespace prepack {
namespace {

constexpr size_t kMostNumbers = 8;
constexpr size_t kMostDigits = 18;
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kGap = "{}";  // in place of a number

// For each gap of a name: its number or, later, the index of a set of numbers. Gaps that a name
// does not have are 0.
using Places = std::array<uint64_t, kMostNumbers>;

struct SplitName {
  std::string text;  // with gaps
  Places numbers{};
  size_t count = 0;
};

bool IsPlainNumber(std::string_view digits) {
  return digits.size() <= kMostDigits && (digits.size() == 1 || digits.front() != '0');
}

SplitName Split(std::string_view name) {
  SplitName split;
  if (name.find_first_of(kGap) != std::string_view::npos) {
    split.text = name;
    return split;
  }
  while (!name.empty()) {
    const size_t begin = std::min(name.find_first_of(kDigits), name.size());
    split.text += name.substr(0, begin);
    name.remove_prefix(begin);
    const std::string_view digits =
        name.substr(0, std::min(name.find_first_not_of(kDigits), name.size()));
    name.remove_prefix(digits.size());
    if (digits.empty()) break;
    if (split.count == kMostNumbers || !IsPlainNumber(digits)) {
      split.text += digits;
      continue;
    }
    split.text += kGap;
    uint64_t& number = split.numbers[split.count++];
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
  }
  return split;
}

// Sets of numbers, ascending; equal ones have the same index.
class NumberSets {
 public:
  uint64_t IndexOf(std::vector<uint64_t> set) {
    const auto [it, is_new] = indices_.try_emplace(std::move(set), sets_.size());
    if (is_new) sets_.push_back(&it->first);
    return it->second;
  }
  const std::vector<uint64_t>& At(uint64_t index) const { return *sets_[index]; }

 private:
  std::map<std::vector<uint64_t>, uint64_t> indices_;
  std::vector<const std::vector<uint64_t>*> sets_;
};

// Names that differ only in this gap become one, with the set of their numbers.
std::vector<Places> FoldPlace(std::vector<Places> names, size_t place, NumberSets& sets) {
  const auto elsewhere = [&](Places places) {
    places[place] = 0;
    return places;
  };
  std::ranges::sort(
      names, {}, [&](const Places& places) { return std::pair(elsewhere(places), places[place]); });
  std::vector<Places> folded;
  for (size_t begin = 0; begin < names.size();) {
    Places alike = elsewhere(names[begin]);
    std::vector<uint64_t> set;
    for (; begin < names.size() && elsewhere(names[begin]) == alike; ++begin) {
      set.push_back(names[begin][place]);
    }
    alike[place] = sets.IndexOf(std::move(set));
    folded.push_back(alike);
  }
  return folded;
}

// "7", "{0..31}", "{0,2..31}".
std::string SetText(const std::vector<uint64_t>& set) {
  if (set.size() == 1) return fmt::format("{}", set.front());
  std::string text = "{";
  for (size_t begin = 0; begin < set.size();) {
    size_t end = begin + 1;
    while (end < set.size() && set[end] == set[end - 1] + 1) ++end;
    if (end - begin == 2) end = begin + 1;  // listing two numbers is not longer
    if (begin != 0) text += ",";
    text += fmt::format("{}", set[begin]);
    if (end - begin > 1) text += fmt::format("..{}", set[end - 1]);
    begin = end;
  }
  return text + "}";
}

NamePattern Describe(std::string_view text, const Places& places, size_t count,
                     const NumberSets& sets) {
  NamePattern pattern{.text = {}, .first = {}, .names = 1};
  for (size_t i = 0; i < count; ++i) {
    const std::vector<uint64_t>& set = sets.At(places[i]);
    const size_t gap = text.find(kGap);
    pattern.text += text.substr(0, gap);
    pattern.text += SetText(set);
    pattern.first += text.substr(0, gap);
    pattern.first += fmt::format("{}", set.front());
    pattern.names *= set.size();
    text.remove_prefix(gap + kGap.size());
  }
  pattern.text += text;
  pattern.first += text;
  return pattern;
}

}  // namespace

std::vector<NamePattern> FoldNames(std::span<const std::string_view> names) {
  // By the number of gaps, because a name may itself contain "{}".
  std::map<std::pair<size_t, std::string>, std::vector<Places>> alike;
  for (const std::string_view name : names) {
    SplitName split = Split(name);
    alike[{split.count, std::move(split.text)}].push_back(split.numbers);
  }
  std::vector<NamePattern> patterns;
  for (auto& [text, folded] : alike) {
    const size_t count = text.first;
    NumberSets sets;
    for (size_t place = count; place-- > 0;) folded = FoldPlace(std::move(folded), place, sets);
    for (const Places& places : folded) {
      patterns.push_back(Describe(text.second, places, count, sets));
    }
  }
  std::ranges::stable_sort(patterns, IsShallower, &NamePattern::first);
  return patterns;
}

namespace {

// Schemes in some order, to group by.
auto OrderOf(const Scheme& scheme) {
  const ActivationScheme& activations = scheme.activations;
  return std::tuple(scheme.code, scheme.bits, scheme.granularity, scheme.group_size,
                    scheme.scale_rows, scheme.symmetric, activations.type, activations.bits,
                    activations.symmetric, activations.dynamic, activations.granularity,
                    activations.group_size);
}

// The scheme without fields that follow from the size of a module.
Scheme WithoutSize(Scheme scheme) {
  if (scheme.granularity == Granularity::kTensor || scheme.granularity == Granularity::kChannel) {
    scheme.group_size = 0;
  }
  return WithoutN(scheme);
}

// Folds the names of `things`; those with equal keys are folded together.
template <typename Folded, typename Thing, typename KeyOf>
std::vector<Folded> FoldAlike(const std::vector<Thing>& things, const KeyOf& key_of) {
  struct Alike {
    std::vector<std::string_view> names;
    const Thing* like = nullptr;
  };
  std::map<decltype(key_of(things.front())), Alike> kinds;
  for (const Thing& thing : things) {
    Alike& alike = kinds[key_of(thing)];
    alike.names.push_back(NameOf(thing));
    alike.like = &thing;
  }
  std::vector<Folded> folded;
  for (const auto& [key, alike] : kinds) {
    for (NamePattern& pattern : FoldNames(alike.names)) {
      folded.push_back({.names = std::move(pattern), .like = alike.like});
    }
  }
  std::ranges::stable_sort(folded, IsShallower,
                           [](const Folded& one) -> const std::string& { return one.names.first; });
  return folded;
}

std::vector<std::string_view> TensorsOfModules(const InspectReport& report) {
  std::vector<std::string_view> names;
  for (const ModuleSummary& module : report.modules) {
    names.insert(names.end(), module.tensors.begin(), module.tensors.end());
  }
  if (!std::ranges::is_sorted(names)) std::ranges::sort(names);
  return names;
}

}  // namespace

double SchemeUse::BitsPerWeight() const {
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
}

std::vector<SchemeUse> UseOfSchemes(const InspectReport& report) {
  std::map<std::pair<decltype(OrderOf({})), std::string_view>, SchemeUse> uses;
  for (const ModuleSummary& module : report.modules) {
    SchemeUse& use = uses[{OrderOf(WithoutSize(module.scheme)), module.layout}];
    if (use.modules++ == 0) {
      use.scheme = module.scheme;
      use.layout = module.layout;
    }
    use.weights += module.n * module.k;
    use.bytes += module.bytes;
  }
  std::vector<SchemeUse> sorted;
  sorted.reserve(uses.size());
  for (auto& [key, use] : uses) sorted.push_back(std::move(use));
  std::ranges::stable_sort(sorted, std::ranges::greater(), &SchemeUse::bytes);
  return sorted;
}

std::vector<DTypeUse> TensorsOutsideModules(const InspectReport& report) {
  const std::vector<std::string_view> inside = TensorsOfModules(report);
  std::map<DType, DTypeUse> uses;
  auto next = inside.begin();  // both are in order
  for (const StoredTensor* tensor : report.tensors) {
    while (next != inside.end() && *next < tensor->name) ++next;
    if (next != inside.end() && *next == tensor->name) continue;
    DTypeUse& use = uses[tensor->dtype];
    use.dtype = tensor->dtype;
    ++use.tensors;
    use.bytes += tensor->bytes;
  }
  std::vector<DTypeUse> sorted;
  sorted.reserve(uses.size());
  for (const auto& [dtype, use] : uses) sorted.push_back(use);
  std::ranges::stable_sort(sorted, std::ranges::greater(), &DTypeUse::bytes);
  return sorted;
}

std::vector<FoldedModules> FoldModules(const InspectReport& report) {
  return FoldAlike<FoldedModules>(report.modules, [](const ModuleSummary& module) {
    return std::tuple(module.n, module.k, OrderOf(module.scheme), module.layout, module.bytes);
  });
}

std::vector<FoldedTensors> FoldTensors(const InspectReport& report) {
  return FoldAlike<FoldedTensors>(report.tensors, [](const StoredTensor* tensor) {
    return std::tuple(tensor->dtype,
                      std::vector<uint64_t>(tensor->shape.begin(), tensor->shape.end()));
  });
}

}  // namespace prepack
