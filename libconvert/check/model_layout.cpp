#include "check/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <span>

#include "check/config_shapes.h"
#include "check/finding_list.h"
#include "formats/json_fields.h"

namespace prepack {
namespace {

constexpr std::array<std::string_view, 4> kDecoderPrefixes = {
    "model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
    "transformer.h.",
};

constexpr size_t kShownNumbers = 5;

std::optional<uint64_t> WholeNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The number that `text` begins with, up to a dot.
std::optional<uint64_t> LeadingNumber(std::string_view text) {
  return WholeNumber(text.substr(0, text.find('.')));
}

std::optional<uint64_t> CountOf(const Json& config, std::string_view key) {
  const Json* value = JsonMember(config, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<uint64_t>();
}

// Numbers below `count` that are not in `present`: how many, and the first of them. `count` comes
// from a file and may be anything, so that it is never counted up to.
struct Missing {
  uint64_t count = 0;
  std::vector<uint64_t> first;
};

Missing MissingBelow(uint64_t count, const std::set<uint64_t>& present) {
  const auto end = present.lower_bound(count);
  Missing missing;
  missing.count = count - static_cast<uint64_t>(std::distance(present.begin(), end));
  for (uint64_t i = 0;
       i < count && missing.first.size() < std::min<uint64_t>(missing.count, kShownNumbers); ++i) {
    if (!present.contains(i)) missing.first.push_back(i);
  }
  return missing;
}

std::string ShowMissing(const Missing& missing) {
  return fmt::format("{}{}", fmt::join(missing.first, ", "),
                     missing.count > missing.first.size() ? ", …" : "");
}

struct Experts {
  std::map<uint64_t, std::set<std::string_view>> tensors;  // by expert: names below it
};

void CheckExpertsOf(const std::string& parent, const Experts& experts,
                    std::optional<uint64_t> configured, std::vector<Finding>& findings) {
  std::set<uint64_t> present;
  std::set<std::string_view> all;
  for (const auto& [expert, names] : experts.tensors) {
    present.insert(expert);
    all.insert(names.begin(), names.end());
  }
  const uint64_t highest = *present.rbegin();
  const uint64_t found = highest == UINT64_MAX ? highest : highest + 1;
  const uint64_t expected = std::max(configured.value_or(0), found);
  if (const Missing missing = MissingBelow(expected, present); missing.count != 0) {
    findings.push_back(MakeFinding("expert-missing", parent,
                                   fmt::format("{} of {} experts are missing: {}", missing.count,
                                               expected, ShowMissing(missing))));
  }
  if (configured && found > *configured) {
    findings.push_back(MakeFinding(
        "expert-count", parent,
        fmt::format("there are {} experts, but {} by config.json", found, *configured)));
  }
  for (const auto& [expert, names] : experts.tensors) {
    std::vector<std::string_view> lacking;
    std::ranges::set_difference(all, names, std::back_inserter(lacking));
    if (lacking.empty()) continue;
    findings.push_back(
        MakeFinding("expert-missing", fmt::format("{}.{}", parent, expert),
                    fmt::format("lacks {}, which other experts have", lacking.front())));
  }
}

}  // namespace

std::optional<uint64_t> DecoderLayerOf(std::string_view name) {
  for (const std::string_view prefix : kDecoderPrefixes) {
    if (name.starts_with(prefix)) return LeadingNumber(name.substr(prefix.size()));
  }
  return std::nullopt;
}

std::string_view LeafName(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

std::string RoleOf(std::string_view module) {
  std::string role;
  while (true) {
    const size_t dot = module.find('.');
    const std::string_view part = module.substr(0, dot);
    role += WholeNumber(part) ? std::string_view("#") : part;
    if (dot == std::string_view::npos) return role;
    role += '.';
    module.remove_prefix(dot + 1);
  }
}

void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings) {
  const std::optional<uint64_t> layers =
      CountOf(TextConfig(checkpoint.config()), "num_hidden_layers");
  std::set<uint64_t> present;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (const auto layer = DecoderLayerOf(name)) present.insert(*layer);
  }
  if (!layers || present.empty()) return;
  if (const Missing missing = MissingBelow(*layers, present); missing.count != 0) {
    findings.push_back(MakeFinding("layer-missing", "config.json: num_hidden_layers",
                                   fmt::format("{} of {} layers have no tensor: {}", missing.count,
                                               *layers, ShowMissing(missing))));
  }
  if (*present.rbegin() >= *layers) {
    findings.push_back(MakeFinding(
        "layer-unknown", "config.json: num_hidden_layers",
        fmt::format("there is a layer {}, but config.json counts {}", *present.rbegin(), *layers)));
  }
}

void CheckExperts(const Checkpoint& checkpoint, std::vector<Finding>& findings) {
  constexpr std::string_view kExperts = ".experts.";
  std::map<std::string, Experts, std::less<>> parents;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const size_t at = name.find(kExperts);
    if (at == std::string::npos) continue;
    const std::string_view below = std::string_view(name).substr(at + kExperts.size());
    const auto expert = LeadingNumber(below);
    if (!expert || below.find('.') == std::string_view::npos) continue;
    parents[name.substr(0, at + kExperts.size() - 1)].tensors[*expert].insert(
        below.substr(below.find('.') + 1));
  }
  const Json& config = TextConfig(checkpoint.config());
  std::optional<uint64_t> configured;
  for (const std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (!configured) configured = CountOf(config, key);
  }
  for (const auto& [parent, experts] : parents) {
    CheckExpertsOf(parent, experts, configured, findings);
  }
}

}  // namespace prepack
