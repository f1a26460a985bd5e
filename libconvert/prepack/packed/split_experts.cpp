#include "prepack/packed/split_experts.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/model/split_linear.h"
#include "prepack/packed/checkpoint_config.h"

namespace prepack {
namespace {

std::string_view ModelType(const Json& config) {
  const Json* type = JsonMember(LanguageConfig(config), "model_type");
  if (type == nullptr || !type->is_string()) return {};
  return type->get_ref<const std::string&>();
}

constexpr std::array<std::string_view, 5> kPlainStacks = {kGptOss, "llama4", "llama4_text",
                                                          "qwen3_vl_moe", "qwen3_vl_moe_text"};

}  // namespace

std::string_view ClassWithStacks(const Json& config, bool plain) {
  const std::string_view type = ModelType(config);
  const bool has =
      plain ? std::ranges::find(kPlainStacks, type) != kPlainStacks.end() : type == kGptOss;
  return has ? type : std::string_view();
}

Result<SplitModules> SplitExperts(const Json& config, const QuantizedModel& model,
                                  const std::set<const QuantizedLinear*>& taken) {
  // All others have those of gate first.
  const bool alternate = ModelType(config) == kGptOss;
  SplitModules split;
  for (const auto& linear : model.modules) {
    if (taken.contains(linear.get())) continue;
    auto pieces = SplitExpert(*linear, alternate);
    if (!pieces.ok()) return pieces.status();
    if (pieces->empty()) split.all.push_back(linear.get());
    for (auto& piece : *pieces) {
      split.all.push_back(piece.get());
      split.pieces.push_back(std::move(piece));
    }
  }
  return split;
}

Status SplitAsPacked(const Manifest& manifest, const Json& config, QuantizedModel& model) {
  if (!IsCheckpointTarget(manifest.target)) return {};
  Result<SplitModules> split = SplitExperts(config, model);
  if (!split.ok()) return split.status();
  const std::set<const QuantizedLinear*> all(split->all.begin(), split->all.end());
  const auto gone =
      std::stable_partition(model.modules.begin(), model.modules.end(),
                            [&](const auto& linear) { return all.contains(linear.get()); });
  std::move(gone, model.modules.end(), std::back_inserter(model.members));
  model.modules.erase(gone, model.modules.end());
  std::move(split->pieces.begin(), split->pieces.end(), std::back_inserter(model.modules));
  std::ranges::sort(model.modules, {},
                    [](const auto& linear) -> const std::string& { return linear->module(); });
  return {};
}

}  // namespace prepack
