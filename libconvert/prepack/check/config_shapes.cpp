#include "prepack/check/config_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/check/finding_list.h"
#include "prepack/check/model_layout.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/json_fields.h"
#include "prepack/formats/model_parts.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/model/module_name.h"

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
    // One value per layer: not told apart here.
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

// What the module with this last name must have; empty sets for one that is not known.
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
      // Rows beyond the vocabulary are padding that everybody expects.
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

void CheckBias(const Checkpoint& checkpoint, const QuantizedLinear& linear,
               std::vector<Finding>& findings) {
  const StoredTensor* bias = checkpoint.Find(linear.module() + ".bias");
  if (bias == nullptr) return;
  const std::array<uint64_t, 1> expected = {linear.n()};
  Status status =
      RequireShape(checkpoint, *bias, expected, "one value per output channel of the module");
  if (status.ok()) {
    status = RequireDType(checkpoint, *bias, "the values of the bias",
                          {DType::kBF16, DType::kF16, DType::kF32, DType::kF64});
  }
  if (!status.ok()) findings.push_back(FindingOf(status));
}

}  // namespace

void CheckConfigShapes(const Checkpoint& checkpoint, const QuantizedModel& model,
                       std::vector<Finding>& findings) {
  ShapeChecker checker(checkpoint, findings);
  for (const auto& linear : model.modules) {
    checker.Check(linear->module(), linear->n(), linear->k());
    CheckBias(checkpoint, *linear, findings);
  }
  constexpr std::string_view kWeight = ".weight";
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (!tensor.name.ends_with(kWeight) || tensor.shape.size() != 2) continue;
    const auto module =
        std::string_view(tensor.name).substr(0, tensor.name.size() - kWeight.size());
    if (model.Find(module) == nullptr) checker.Check(module, tensor.shape[0], tensor.shape[1]);
  }
}

}  // namespace prepack
