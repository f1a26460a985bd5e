// Compares modules with the sizes in config.json, and experts with each other.

#include "prepack/check/model_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/text.h"
#include "prepack/check/check.h"
#include "prepack/check/plain_statistics.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/model_parts.h"
#include "prepack/measure/baseline.h"
#include "prepack/model/module_name.h"
#include "prepack/packed/small_parts.h"

namespace prepack {
namespace {

// Values that a dimension may have; empty: unknown.
using Allowed = std::set<uint64_t>;

std::optional<uint64_t> Positive(const Json& config, std::string_view key) {
  const Json* value = JsonMember(config, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  const auto number = value->get<uint64_t>();
  return number == 0 ? std::nullopt : std::optional(number);
}

Allowed Product(std::optional<uint64_t> a, std::optional<uint64_t> b) {
  if (!a || !b) return {};
  const std::optional<uint64_t> product = CheckedMul(*a, *b);
  return product ? Allowed{*product} : Allowed{};
}

Allowed Twice(const Allowed& values) {
  Allowed twice;
  for (const uint64_t value : values) twice.merge(Product(value, 2));
  return twice;
}

struct Dimensions {
  Allowed hidden;
  Allowed query;      // heads · head_dim
  Allowed key_value;  // of the keys, and of the values
  Allowed fused;      // queries, keys and values
  Allowed inner;      // of the MLP; several where experts have another size
  std::optional<uint64_t> vocabulary;
};

Allowed InnerSizes(const Json& config) {
  Allowed sizes;
  for (const auto& [key, value] : config.items()) {
    const bool named = key.find("intermediate_size") != std::string::npos || key == "ffn_dim" ||
                       key == "n_inner" || key == "ffn_hidden_size";
    if (!named) continue;
    // One value per layer, which this check does not support.
    if (value.is_array()) return {};
    if (const auto size = Positive(config, key)) sizes.insert(*size);
  }
  sizes.merge(
      Product(Positive(config, "n_shared_experts"), Positive(config, "moe_intermediate_size")));
  if (JsonMember(config, "use_double_wide_mlp") != nullptr) sizes.merge(Twice(sizes));
  return sizes;
}

bool HasUsualAttention(const Json& config) {
  constexpr std::array<std::string_view, 5> kOther = {
      "kv_lora_rank", "q_lora_rank", "global_head_dim", "v_head_dim", "num_global_key_value_heads"};
  return std::ranges::none_of(
      kOther, [&](std::string_view key) { return JsonMember(config, key) != nullptr; });
}

Dimensions ReadDimensions(const Json& config) {
  Dimensions dimensions;
  const auto hidden = Positive(config, "hidden_size");
  if (hidden) dimensions.hidden = {*hidden};
  dimensions.inner = InnerSizes(config);
  dimensions.vocabulary = Positive(config, "vocab_size");
  const auto heads = Positive(config, "num_attention_heads");
  if (!heads || !HasUsualAttention(config)) return dimensions;
  auto head_dim = Positive(config, "head_dim");
  if (!head_dim && hidden && *hidden % *heads == 0) head_dim = *hidden / *heads;
  const auto key_value_heads = Positive(config, "num_key_value_heads").value_or(*heads);
  dimensions.query = Product(heads, head_dim);
  dimensions.key_value = Product(key_value_heads, head_dim);
  if (!dimensions.query.empty() && !dimensions.key_value.empty()) {
    const Allowed both = Twice(dimensions.key_value);
    const auto sum =
        both.empty() ? std::nullopt : CheckedAdd(*dimensions.query.begin(), *both.begin());
    if (sum) dimensions.fused = {*sum};
  }
  return dimensions;
}

struct Shape {
  Allowed n;
  Allowed k;
};

// The sizes that a module with this last name must have; empty sets if the name is unknown.
Shape ShapeOf(std::string_view leaf, const Dimensions& dimensions) {
  if (leaf == "q_proj") {
    // Some models gate the attention: twice as many channels.
    Allowed n = dimensions.query;
    n.merge(Twice(dimensions.query));
    return {n, dimensions.hidden};
  }
  if (leaf == "k_proj" || leaf == "v_proj") return {dimensions.key_value, dimensions.hidden};
  if (leaf == "qkv_proj") return {dimensions.fused, dimensions.hidden};
  if (leaf == "o_proj") return {dimensions.hidden, dimensions.query};
  if (leaf == "gate_proj" || leaf == "up_proj") return {dimensions.inner, dimensions.hidden};
  if (leaf == "gate_up_proj") return {Twice(dimensions.inner), dimensions.hidden};
  if (leaf == "down_proj") return {dimensions.hidden, dimensions.inner};
  return {};
}

std::string ShowAllowed(const Allowed& allowed) {
  return fmt::format("{}", fmt::join(allowed, " or "));
}

void CheckDimension(std::string_view module, std::string_view name, uint64_t found,
                    const Allowed& allowed, std::vector<Finding>& findings) {
  if (allowed.empty() || allowed.contains(found)) return;
  const auto above = allowed.upper_bound(found);
  const bool padded = above != allowed.begin() && found - *std::prev(above) <= kMaxPadding;
  findings.push_back(MakeFinding(
      padded ? FindingId("module-padded") : FindingId("config-shape"), module,
      fmt::format("{} is {}, but {} by config.json", name, found, ShowAllowed(allowed))));
}

class ShapeChecker {
 public:
  ShapeChecker(const Checkpoint& checkpoint, std::vector<Finding>& findings)
      : dimensions_(ReadDimensions(LanguageConfig(checkpoint.config()))), findings_(findings) {}

  void Check(std::string_view module, uint64_t n, uint64_t k) {
    const std::string_view leaf = LastPart(module);
    if (leaf == "lm_head" || leaf == "embed_tokens") {
      // Rows beyond the vocabulary are padding, which every runtime expects.
      if (dimensions_.vocabulary && n < *dimensions_.vocabulary) {
        CheckDimension(module, "the number of rows", n, {*dimensions_.vocabulary}, findings_);
      }
      return CheckDimension(module, "K", k, dimensions_.hidden, findings_);
    }
    if (!IsDecoderModule(module)) return;
    const Shape shape = ShapeOf(leaf, dimensions_);
    CheckDimension(module, "N", n, shape.n, findings_);
    CheckDimension(module, "K", k, shape.k, findings_);
  }

 private:
  Dimensions dimensions_;
  std::vector<Finding>& findings_;
};

}  // namespace

void CheckConfigShapes(const Checkpoint& checkpoint, const QuantizedModel& model,
                       std::vector<Finding>& findings) {
  ShapeChecker checker(checkpoint, findings);
  for (const auto& linear : model.modules) {
    checker.Check(linear->module(), linear->n(), linear->k());
    if (Status status = CheckBiases(checkpoint, *linear); !status.ok()) {
      findings.push_back(FindingOf(status));
    }
  }
  constexpr std::string_view kWeight = ".weight";
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    // The codes of a module that is not read may have any shape.
    if (!tensor.name.ends_with(kWeight) || tensor.shape.size() != 2) continue;
    if (!IsPlainFloat(tensor.dtype)) continue;
    const auto module =
        std::string_view(tensor.name).substr(0, tensor.name.size() - kWeight.size());
    if (model.Find(module) == nullptr) checker.Check(module, tensor.shape[0], tensor.shape[1]);
  }
}

namespace {

constexpr std::string_view kExperts = ".experts.";

// The modules of each expert of a layer, by the expert's number, if experts have their own tensors.
using Experts = std::map<uint64_t, std::set<std::string_view>>;

// The two halves of a tensor's name, before and after the experts: "model.layers.0.mlp.experts" and
// "3.up_proj.weight", or "gate_up_proj" for all experts.
struct ExpertTensor {
  std::string_view parent;
  std::string_view below;
  std::optional<uint64_t> expert;

  // "up_proj"; empty: the tensor belongs to no module of the expert.
  std::string_view module() const {
    const size_t dot = below.rfind('.');
    return dot == std::string_view::npos ? std::string_view() : below.substr(0, dot);
  }
};

std::optional<ExpertTensor> ParseExpertTensor(std::string_view name) {
  const size_t at = name.find(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  ExpertTensor parsed{.parent = name.substr(0, at + kExperts.size() - 1),
                      .below = name.substr(at + kExperts.size()),
                      .expert = std::nullopt};
  const size_t dot = parsed.below.find('.');
  if (dot != std::string_view::npos) parsed.expert = ParseUint(parsed.below.substr(0, dot));
  if (parsed.expert) parsed.below.remove_prefix(dot + 1);
  return parsed;
}

Experts ExpertsIn(const std::vector<const StoredTensor*>& tensors) {
  Experts experts;
  for (const StoredTensor* tensor : tensors) {
    const std::optional<ExpertTensor> parsed = ParseExpertTensor(tensor->name);
    experts[*parsed->expert].insert(parsed->module());
  }
  return experts;
}

std::optional<uint64_t> ConfiguredExperts(const Json& config) {
  for (const std::string_view key :
       {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
    if (const auto count = CountOf(config, key)) return count;
  }
  return std::nullopt;
}

void CheckNumbers(const std::string& parent, const Experts& experts,
                  std::optional<uint64_t> configured, FindingTally& findings) {
  std::set<uint64_t> present;
  for (const auto& [expert, modules] : experts) present.insert(expert);
  const uint64_t highest = *present.rbegin();
  const uint64_t found = highest == UINT64_MAX ? highest : highest + 1;
  const uint64_t expected = std::max(configured.value_or(0), found);
  if (const MissingNumbers missing = MissingBelow(expected, present); missing.count != 0) {
    findings.Add("expert-missing", parent,
                 fmt::format("{} of {} experts are missing: {}", missing.count, expected,
                             ShowMissing(missing)));
  }
  if (configured && found > *configured) {
    findings.Add("expert-count", parent,
                 fmt::format("there are {} experts, but {} by config.json", found, *configured));
  }
}

void CheckModules(const std::string& parent, const Experts& experts, FindingTally& findings) {
  std::set<std::string_view> all;
  for (const auto& [expert, modules] : experts) all.insert(modules.begin(), modules.end());
  for (const auto& [expert, modules] : experts) {
    // Both are sorted, and `all` contains everything that any expert has.
    const auto lacking = std::ranges::mismatch(all, modules).in1;
    if (lacking == all.end()) continue;
    findings.Add("expert-missing", fmt::format("{}.{}", parent, expert),
                 fmt::format("{} is missing, which other experts have", *lacking));
  }
}

// How a module is quantized; nullopt for one that could not be read.
struct State {
  std::optional<Scheme> scheme;  // nullopt: it is not quantized

  friend bool operator==(const State&, const State&) = default;
};

std::optional<State> StateOf(const Checkpoint& checkpoint, const QuantizedModel& model,
                             const std::string& module) {
  if (const QuantizedLinear* linear = model.Find(module)) return State{linear->scheme()};
  const StoredTensor* weight = checkpoint.Find(module + ".weight");
  if (weight == nullptr || !IsPlainFloat(weight->dtype)) return std::nullopt;
  return State{};
}

std::string ShowState(const State& state) {
  return state.scheme ? DescribeScheme(*state.scheme) : "not quantized";
}

void CompareSchemes(const Checkpoint& checkpoint, const QuantizedModel& model,
                    const std::string& parent, const Experts& experts, FindingTally& findings) {
  std::map<std::string_view, State> first;  // by module of the expert
  std::set<std::string_view> reported;
  for (const auto& [expert, modules] : experts) {
    for (const std::string_view below : modules) {
      const std::string module = fmt::format("{}.{}.{}", parent, expert, below);
      const std::optional<State> state = StateOf(checkpoint, model, module);
      if (!state) continue;
      const auto [it, added] = first.try_emplace(below, *state);
      if (added || it->second == *state || !reported.insert(below).second) continue;
      findings.Add("expert-schemes-differ", module,
                   fmt::format("{}, but an earlier expert has {}", ShowState(*state),
                               ShowState(it->second)));
    }
  }
}

// The first dimension of tensors that hold all experts of a layer, by layer.
using Stacks = std::map<std::string_view, std::map<std::string_view, uint64_t>>;

void CheckStacks(const Stacks& stacks, std::optional<uint64_t> configured, FindingTally& findings) {
  for (const auto& [parent, tensors] : stacks) {
    uint64_t expected = configured.value_or(0);
    if (!configured) {
      for (const auto& [tensor, count] : tensors) expected = std::max(expected, count);
    }
    for (const auto& [tensor, count] : tensors) {
      if (count == expected) continue;
      findings.Add(count < expected ? FindingId("expert-missing") : FindingId("expert-count"),
                   tensor,
                   fmt::format("the tensor holds {} experts, but {} by {}", count, expected,
                               configured ? "config.json" : "the other tensors of the layer"));
    }
  }
}

}  // namespace

void CheckExperts(const Checkpoint& checkpoint, const QuantizedModel& model,
                  std::vector<Finding>& findings) {
  std::map<std::string_view, std::vector<const StoredTensor*>> layers;
  Stacks stacks;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::optional<ExpertTensor> parsed = ParseExpertTensor(tensor.name);
    if (!parsed) continue;
    if (parsed->expert) {
      if (!parsed->module().empty()) layers[parsed->parent].push_back(&tensor);
    } else if (tensor.shape.size() >= 3) {
      stacks[parsed->parent][tensor.name] = tensor.shape[0];
    }
  }
  const std::optional<uint64_t> configured = ConfiguredExperts(LanguageConfig(checkpoint.config()));
  FindingTally tally;
  for (const auto& [name, tensors] : layers) {
    const std::string parent(name);
    const Experts experts = ExpertsIn(tensors);  // of one layer at a time: there may be very many
    CheckNumbers(parent, experts, configured, tally);
    CheckModules(parent, experts, tally);
    CompareSchemes(checkpoint, model, parent, experts, tally);
  }
  CheckStacks(stacks, configured, tally);
  for (Finding& finding : tally.Take()) findings.push_back(std::move(finding));
}

}  // namespace prepack
