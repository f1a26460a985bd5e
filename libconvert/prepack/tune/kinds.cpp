#include "prepack/tune/kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "prepack/container/json.h"
#include "prepack/convert/fused_modules.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// A unit with what decides on its kind and shape.
struct SortedUnit {
  TuneUnit unit;
  TuneUnitSort sort = TuneUnitSort::kModule;

  const QuantizedLinear& first() const { return *unit.modules.front(); }
};

bool IsAlike(const QuantizedLinear& a, const QuantizedLinear& b) {
  return a.n() == b.n() && a.k() == b.k() && a.scheme() == b.scheme() &&
         a.reordered() == b.reordered() && a.stored_scale_dtype() == b.stored_scale_dtype();
}

bool IsAlike(const TuneUnit& a, const TuneUnit& b) {
  return std::ranges::equal(a.modules, b.modules,
                            [](const QuantizedLinear* one, const QuantizedLinear* other) {
                              return IsAlike(*one, *other);
                            });
}

// By layer: names sort layer 10 before layer 2.
bool IsInEarlierLayer(const TuneUnit& a, const TuneUnit& b) {
  const auto index = [](const TuneUnit& unit) {
    const auto layer = ParseLayerName(unit.name);
    return layer ? layer->index : 0;
  };
  return index(a) < index(b);
}

// By number: names sort expert 10 before expert 2.
bool IsEarlierExpert(const QuantizedLinear* a, const QuantizedLinear* b) {
  return ParseExpertName(a->module())->index < ParseExpertName(b->module())->index;
}

std::vector<SortedUnit> MixturesOf(const std::vector<const QuantizedLinear*>& experts) {
  std::map<std::string_view, TuneUnit> mixtures;
  for (const QuantizedLinear* linear : experts) {
    const ExpertName name = *ParseExpertName(linear->module());
    TuneUnit& unit = mixtures[name.mixture];
    unit.name = name.mixture;
    unit.modules.push_back(linear);
  }
  std::vector<SortedUnit> units;
  for (auto& [name, unit] : mixtures) {
    std::ranges::stable_sort(unit.modules, IsEarlierExpert);
    units.push_back({.unit = std::move(unit), .sort = TuneUnitSort::kMixture});
  }
  return units;
}

// Removes those that are fused from `single`.
Result<std::vector<SortedUnit>> FusedUnits(const Checkpoint& checkpoint,
                                           const QuantizedModel& model,
                                           std::vector<const QuantizedLinear*>& single) {
  PREPACK_TRY_ASSIGN(const FusedModules fused, FuseSiblings(checkpoint, model, false));
  std::set<const QuantizedLinear*> taken;
  std::vector<SortedUnit> units;
  for (const auto& whole : fused.modules) {
    const auto members = whole->members();
    const bool all_single = std::ranges::all_of(members, [&](const QuantizedLinear* member) {
      return std::ranges::count(single, member) != 0;
    });
    if (!all_single) continue;
    taken.insert(members.begin(), members.end());
    units.push_back({.unit = {.name = std::string(whole->module()),
                              .modules = {members.begin(), members.end()}},
                     .sort = TuneUnitSort::kFused});
  }
  single.erase(
      std::remove_if(single.begin(), single.end(),
                     [&](const QuantizedLinear* linear) { return taken.contains(linear); }),
      single.end());
  return units;
}

void AddToShapes(TuneUnit unit, std::vector<TuneShape>& shapes) {
  const auto alike = std::ranges::find_if(
      shapes, [&](const TuneShape& shape) { return IsAlike(shape.units.front(), unit); });
  TuneShape& shape = alike == shapes.end() ? shapes.emplace_back() : *alike;
  shape.units.push_back(std::move(unit));
}

// Some experts of a mixture, each whole.
TuneUnit SampleOf(const TuneUnit& mixture, uint64_t experts, uint64_t count) {
  TuneUnit sample{.name = mixture.name};
  const size_t of_each = mixture.modules.size() / experts;
  for (const size_t expert : SpreadOver(experts, count)) {
    const auto first = mixture.modules.begin() + static_cast<std::ptrdiff_t>(expert * of_each);
    sample.modules.insert(sample.modules.end(), first,
                          first + static_cast<std::ptrdiff_t>(of_each));
  }
  return sample;
}

uint64_t CountExperts(const TuneUnit& mixture) {
  std::set<uint64_t> experts;
  for (const QuantizedLinear* linear : mixture.modules) {
    experts.insert(ParseExpertName(linear->module())->index);
  }
  return experts.size();
}

void TakeSample(const TuneKind& kind, uint64_t layers, uint64_t top_k, TuneShape& shape) {
  std::ranges::stable_sort(shape.units, IsInEarlierLayer);
  const bool mixture = kind.sort == TuneUnitSort::kMixture;
  if (mixture) {
    shape.experts = CountExperts(shape.units.front());
    shape.top_k = std::min(top_k, shape.experts);
  }
  for (const size_t place : SpreadOver(shape.units.size(), layers)) {
    const TuneUnit& unit = shape.units[place];
    shape.sample.push_back(mixture ? SampleOf(unit, shape.experts, layers) : unit);
  }
}

// Why what runs a unit is nothing that is measured; empty if it is.
std::string_view WhyLeftOut(const SortedUnit& unit, uint64_t top_k) {
  if (unit.first().scheme().code == CodeType::kBF16) return "its weights are not quantized";
  if (unit.sort != TuneUnitSort::kMixture) {
    return IsExpert(unit.unit.name) ? "an expert under a name that says neither which nor of what"
                                    : "";
  }
  if (top_k == 0) return "config.json does not say how many experts a token goes through";
  const uint64_t experts = CountExperts(unit.unit);
  for (size_t i = 0; i < unit.unit.modules.size(); ++i) {
    const size_t of_each = unit.unit.modules.size() / experts;
    if (unit.unit.modules.size() % experts != 0 ||
        !IsAlike(*unit.unit.modules[i], *unit.unit.modules[i % of_each])) {
      return "its experts differ in their sizes or schemes";
    }
  }
  return "";
}

std::string Escaped(std::string_view role) {
  std::string pattern;
  for (const char c : role) {
    if (c == '#') {
      pattern += "[0-9]+";
    } else if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) {
      pattern += {'\\', c};
    } else {
      pattern += c;
    }
  }
  return pattern;
}

std::vector<std::string> PartsOf(const SortedUnit& unit) {
  std::vector<std::string> parts;
  if (unit.sort != TuneUnitSort::kFused) return parts;
  for (const QuantizedLinear* linear : unit.unit.modules) {
    parts.emplace_back(LastPart(linear->module()));
  }
  return parts;
}

}  // namespace

uint64_t TuneShape::n() const {
  if (experts != 0) return first().n();
  uint64_t sum = 0;
  for (const QuantizedLinear* linear : units.front().modules) sum += linear->n();
  return sum;
}

size_t TuneShape::modules() const {
  size_t count = 0;
  for (const TuneUnit& unit : units) count += unit.modules.size();
  return count;
}

uint64_t TuneShape::sampled_weights() const {
  uint64_t weights = 0;
  for (const TuneUnit& unit : sample) {
    for (const QuantizedLinear* linear : unit.modules) weights += linear->n() * linear->k();
  }
  return weights;
}

size_t TuneKind::modules() const {
  size_t count = 0;
  for (const TuneShape& shape : shapes) count += shape.modules();
  return count;
}

std::string TuneKind::Pattern() const {
  if (sort == TuneUnitSort::kMixture) return fmt::format("^{}\\.", Escaped(role));
  if (sort == TuneUnitSort::kModule) return fmt::format("^{}$", Escaped(role));
  std::vector<std::string> names;
  for (const std::string& part : parts) names.push_back(Escaped(part));
  const std::string_view parent = ModuleOf(role);
  // A name without a dot is its own parent.
  const std::string before = parent.size() == role.size() ? "" : Escaped(parent) + "\\.";
  return fmt::format("^{}({})$", before, fmt::join(names, "|"));
}

std::vector<size_t> SpreadOver(size_t all, uint64_t count) {
  std::vector<size_t> places;
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(all, count));
  for (size_t i = 0; i < wanted; ++i) {
    places.push_back(wanted == 1 ? 0 : i * (all - 1) / (wanted - 1));
  }
  return places;
}

uint64_t ExpertsPerToken(const Json& config) {
  constexpr std::array<std::string_view, 4> kNames = {
      "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk"};
  for (const Json* part : {&config, JsonMember(config, "text_config")}) {
    if (part == nullptr) continue;
    for (const std::string_view name : kNames) {
      const Json* value = JsonMember(*part, name);
      if (value == nullptr || !value->is_number_integer()) continue;
      if (const auto count = value->get<int64_t>(); count > 0) return static_cast<uint64_t>(count);
    }
  }
  return 0;
}

Result<TuneKinds> KindsOf(const Checkpoint& checkpoint, const QuantizedModel& model,
                          const TuneSampling& sampling) {
  std::vector<const QuantizedLinear*> single;
  std::vector<const QuantizedLinear*> experts;
  for (const auto& linear : model.modules) {
    (ParseExpertName(linear->module()) ? experts : single).push_back(linear.get());
  }
  std::vector<SortedUnit> units = MixturesOf(experts);
  if (sampling.fuse) {
    PREPACK_TRY_ASSIGN(std::vector<SortedUnit> fused, FusedUnits(checkpoint, model, single));
    std::ranges::move(fused, std::back_inserter(units));
  }
  for (const QuantizedLinear* linear : single) {
    units.push_back({.unit = {.name = std::string(linear->module()), .modules = {linear}}});
  }
  const uint64_t top_k = ExpertsPerToken(checkpoint.config());
  TuneKinds result;
  std::map<std::pair<std::string, uint32_t>, TuneKind> kinds;
  for (SortedUnit& unit : units) {
    std::string role = RoleOf(unit.unit.name);
    if (const std::string_view why = WhyLeftOut(unit, top_k); !why.empty()) {
      result.left_out.emplace(std::move(role), why);
      continue;
    }
    TuneKind& kind = kinds[std::pair(role, unit.first().scheme().bits)];
    kind.role = std::move(role);
    kind.sort = unit.sort;
    kind.bits = unit.first().scheme().bits;
    kind.parts = PartsOf(unit);
    AddToShapes(std::move(unit.unit), kind.shapes);
  }
  for (auto& [key, kind] : kinds) {
    for (TuneShape& shape : kind.shapes) TakeSample(kind, sampling.layers, top_k, shape);
    result.kinds.push_back(std::move(kind));
  }
  return result;
}

}  // namespace prepack
