// Groups modules whose names differ only in numbers, which makes one line of thousands of experts.

#include "prepack/inspect/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <compare>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "prepack/report/charts.h"

namespace prepack {
namespace {

constexpr size_t kMostNumbers = 8;
constexpr size_t kMostDigits = 18;
constexpr std::string_view kGap = "{}";  // in place of a number

// Names of one text with gaps. For each gap of a name: its number or, later, the index of a set of
// numbers.
class GapNumbers {
 public:
  explicit GapNumbers(size_t gaps) : gaps_(gaps) {}

  void Add(std::span<const uint64_t> numbers) {
    ++names_;
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  }
  size_t names() const { return names_; }
  std::span<const uint64_t> Of(size_t name) const {
    return std::span(numbers_).subspan(name * gaps_, gaps_);
  }

 private:
  size_t gaps_;
  size_t names_ = 0;  // there may be no gap
  std::vector<uint64_t> numbers_;
};

struct SplitName {
  std::string text;  // with gaps
  std::array<uint64_t, kMostNumbers> numbers{};
  size_t count = 0;

  std::span<const uint64_t> Numbers() const { return std::span(numbers).first(count); }
};

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool IsPlainNumber(std::string_view digits) {
  return digits.size() <= kMostDigits && (digits.size() == 1 || digits.front() != '0');
}

// `split` is one that was used before.
void Split(std::string_view name, SplitName& split) {
  split.text.clear();
  split.count = 0;
  if (std::ranges::any_of(name, [](char c) { return c == '{' || c == '}'; })) {
    split.text = name;
    return;
  }
  while (!name.empty()) {
    const auto begin = std::ranges::find_if(name, IsDigit);
    split.text.append(name.begin(), begin);
    const auto end = std::find_if_not(begin, name.end(), IsDigit);
    const std::string_view digits(begin, end);
    name = std::string_view(end, name.end());
    if (digits.empty()) break;
    if (split.count == kMostNumbers || !IsPlainNumber(digits)) {
      split.text += digits;
      continue;
    }
    split.text += kGap;
    uint64_t& number = split.numbers[split.count++];
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
  }
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

// By all numbers but that of the gap, which comes last.
std::strong_ordering OrderBut(size_t gap, std::span<const uint64_t> a,
                              std::span<const uint64_t> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (i != gap && a[i] != b[i]) return a[i] <=> b[i];
  }
  return std::strong_ordering::equal;
}

// Names that differ only in this gap become one, with the set of their numbers.
GapNumbers FoldGap(const GapNumbers& names, size_t gap, size_t gaps, NumberSets& sets) {
  std::vector<size_t> order(names.names());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    const std::strong_ordering others = OrderBut(gap, names.Of(a), names.Of(b));
    return std::is_neq(others) ? std::is_lt(others) : names.Of(a)[gap] < names.Of(b)[gap];
  });
  GapNumbers folded(gaps);
  for (size_t begin = 0; begin < order.size();) {
    const std::span<const uint64_t> first = names.Of(order[begin]);
    std::vector<uint64_t> set;
    for (; begin < order.size() && std::is_eq(OrderBut(gap, names.Of(order[begin]), first));
         ++begin) {
      set.push_back(names.Of(order[begin])[gap]);
    }
    std::vector<uint64_t> one(first.begin(), first.end());
    one[gap] = sets.IndexOf(std::move(set));
    folded.Add(one);
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

NamePattern Describe(std::string_view text, std::span<const uint64_t> indices,
                     const NumberSets& sets) {
  NamePattern pattern{.text = {}, .first = {}, .names = 1};
  for (const uint64_t index : indices) {
    const std::vector<uint64_t>& set = sets.At(index);
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
  std::map<std::pair<size_t, std::string>, GapNumbers> alike;
  auto last = alike.end();  // neighbours often have the same text
  SplitName split;
  for (const std::string_view name : names) {
    Split(name, split);
    if (last == alike.end() || last->first.first != split.count ||
        last->first.second != split.text) {
      last = alike.try_emplace({split.count, split.text}, split.count).first;
    }
    last->second.Add(split.Numbers());
  }
  std::vector<NamePattern> patterns;
  for (auto& [text, numbers] : alike) {
    NumberSets sets;
    for (size_t gap = text.first; gap-- > 0;) {
      numbers = FoldGap(numbers, gap, text.first, sets);
    }
    for (size_t i = 0; i < numbers.names(); ++i) {
      patterns.push_back(Describe(text.second, numbers.Of(i), sets));
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
