#include "prepack/packed/split_experts.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "prepack/container/model_config.h"
#include "prepack/model/split_linear.h"
#include "prepack/packed/checkpoint_config.h"

namespace prepack {
namespace {

constexpr std::array<std::string_view, 5> kPlainStacks = {kGptOss, "llama4", "llama4_text",
                                                          "qwen3_vl_moe", "qwen3_vl_moe_text"};

}  // namespace

std::string_view ClassWithStacks(const Json& config, bool plain) {
  const std::string_view type = ModelTypeOf(config);
  const bool has =
      plain ? std::ranges::find(kPlainStacks, type) != kPlainStacks.end() : type == kGptOss;
  return has ? type : std::string_view();
}

Result<SplitModules> SplitExperts(const Json& config, const QuantizedModel& model,
                                  std::span<const QuantizedLinear* const> taken) {
  // gpt-oss has the output channels of gate and up in turn; all others those of gate first.
  const bool alternate = ModelTypeOf(config) == kGptOss;
  SplitModules split;
  for (const auto& linear : model.modules) {
    if (std::ranges::binary_search(taken, linear.get())) continue;
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
  std::set<const QuantizedLinear*> gone;
  for (const auto& linear : model.modules) gone.insert(linear.get());
  for (const QuantizedLinear* whole : split->all) gone.erase(whole);
  model.Replace(gone, std::move(split->pieces));
  return {};
}

}  // namespace prepack
