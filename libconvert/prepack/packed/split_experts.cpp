#include "prepack/packed/split_experts.h"

#include <algorithm>
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

// gpt-oss has the output channels of gate and up in turn; all others those of gate first.
bool GateAndUpAlternate(const Json& config) {
  const Json* model = JsonMember(LanguageConfig(config), "model_type");
  return model != nullptr && *model == "gpt_oss";
}

}  // namespace

Result<SplitModules> SplitExperts(const Json& config, const QuantizedModel& model) {
  const bool alternate = GateAndUpAlternate(config);
  SplitModules split;
  for (const auto& linear : model.modules) {
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
