#include "prepack/packed/plain_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/container/json.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/plain_linear.h"
#include "prepack/model/module_name.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/small_parts.h"

namespace prepack {
namespace {

using Weights = std::vector<const StoredTensor*>;
using Linears = std::vector<std::unique_ptr<QuantizedLinear>>;

// Runtimes pack smaller ones in milliseconds.
constexpr uint64_t kSmallest = uint64_t{1} << 20;
// Blocks of output and of input channels. Heads are padded to whole 64, and packed if they need no
// padding.
constexpr uint64_t kBlock = 32;
constexpr uint64_t kHeadBlock = 64;

constexpr std::string_view kAttention = "self_attn";

bool IsTied(const Json& config) {
  const auto says = [](const Json& part) {
    const Json* tied = JsonMember(part, "tie_word_embeddings");
    return tied != nullptr && *tied == true;
  };
  return says(config) || says(LanguageConfig(config));
}

// The weights of all of the modules, if each is plain and of whole blocks; else none.
Weights FindWhole(const Checkpoint& checkpoint, const QuantizedModel& model,
                  const std::vector<std::string>& modules, uint64_t block) {
  Weights weights;
  uint64_t bytes = 0;
  for (const std::string& module : modules) {
    const StoredTensor* weight = FindPlainWeight(checkpoint, module);
    if (weight == nullptr || model.Find(module) != nullptr) return {};
    if (weight->shape[0] % block != 0 || weight->shape[1] % kBlock != 0) return {};
    weights.push_back(weight);
    bytes += weight->bytes;
  }
  return bytes < kSmallest ? Weights{} : weights;
}

// All of them, or none if one has a bias that is none of a linear layer.
void Add(const Checkpoint& checkpoint, const Weights& weights, Linears& added) {
  Linears own;
  for (const StoredTensor* weight : weights) {
    own.push_back(MakePlainLinear(checkpoint, *weight));
    if (!CheckBiases(checkpoint, *own.back()).ok()) return;
  }
  std::ranges::move(own, std::back_inserter(added));
}

// "model.layers.0.self_attn" for each attention of a decoder. Encoders of images and sounds have
// theirs within a part of the model that is named so.
std::set<std::string> AttentionsOf(const Checkpoint& checkpoint) {
  std::set<std::string> found;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::string_view parent = ModuleOf(ModuleOf(tensor.name));
    if (LastPart(parent) != kAttention || !IsDecoderModule(parent)) continue;
    const bool of_encoder =
        std::ranges::any_of(std::array{"vision", "visual", "audio", "encoder"},
                            [&](auto name) { return parent.find(name) != std::string_view::npos; });
    if (!of_encoder) found.emplace(parent);
  }
  return found;
}

bool MayHavePlain(const Checkpoint& checkpoint) {
  return checkpoint.origin() == nullptr && !IsPackedFolder(checkpoint);
}

}  // namespace

void AddPlainModules(const Checkpoint& checkpoint, QuantizedModel& model) {
  if (!MayHavePlain(checkpoint)) return;
  Linears added;
  if (!IsTied(checkpoint.config())) {
    for (const std::string_view prefix : {"", "language_model.", "model.language_model."}) {
      const std::string head = fmt::format("{}lm_head", prefix);
      Add(checkpoint, FindWhole(checkpoint, model, {head}, kHeadBlock), added);
    }
  }
  for (const std::string& attention : AttentionsOf(checkpoint)) {
    const auto name = [&](std::string_view part) { return fmt::format("{}.{}", attention, part); };
    Add(checkpoint,
        FindWhole(checkpoint, model, {name("q_proj"), name("k_proj"), name("v_proj")}, kBlock),
        added);
    Add(checkpoint, FindWhole(checkpoint, model, {name("o_proj")}, kBlock), added);
  }
  model.Replace({}, std::move(added));
}

void AddPlainAsPacked(const Manifest& manifest, const Checkpoint& checkpoint,
                      QuantizedModel& model) {
  if (!MayHavePlain(checkpoint)) return;
  Linears added;
  for (const auto& [name, record] : manifest.modules) {
    if (record.scheme.code != CodeType::kBF16 || record.experts != 0) continue;
    std::vector<std::string> layers = LayersByName(name);
    if (record.fused.empty()) layers = {name};
    for (const std::string& layer : layers) {
      const StoredTensor* weight = FindPlainWeight(checkpoint, layer);
      if (weight == nullptr || model.Find(layer) != nullptr) continue;
      added.push_back(MakePlainLinear(checkpoint, *weight));
    }
  }
  model.Replace({}, std::move(added));
}

}  // namespace prepack
