// Modules whose input channels are told by all else in a layer, though by nothing alone.

#include "prepack/check/hidden_channels.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "check/check_run.h"

namespace prepack::testing {
namespace {

constexpr size_t kChannels = 512;
constexpr size_t kTokens = 8;

std::vector<float> Bell(SplitMix64& random) {
  std::vector<float> values(kChannels);
  for (float& value : values) value = static_cast<float>(random.Gaussian());
  return values;
}

// Two norms, an embedding and two modules that have nothing in common, and a third module that has
// something of each.
struct LayerExample {
  std::vector<std::vector<float>> parts;
  std::vector<float> values;  // of v_proj

  explicit LayerExample(double share = 1) {
    SplitMix64 random(3);
    values = Bell(random);
    for (size_t i = 0; i < 5; ++i) {
      parts.push_back(Bell(random));
      for (size_t k = 0; k < kChannels; ++k) {
        values[k] += static_cast<float>(0.3 * share) * parts[i][k];
      }
    }
  }
};

std::vector<float> Energies(const std::vector<float>& logarithms) {
  std::vector<float> energies(logarithms.size());
  std::ranges::transform(logarithms, energies.begin(), [](float x) { return std::exp(x); });
  return energies;
}

std::vector<float> ReversedByFours(std::vector<float> values) {
  for (auto i = values.begin(); i != values.end(); i += 4) std::reverse(i, i + 4);
  return values;
}

std::vector<std::byte> Stored(const std::vector<float>& values, size_t times = 1) {
  std::vector<std::byte> bytes(2 * times * values.size());
  for (size_t i = 0; i < times * values.size(); ++i) {
    PutBF16(bytes, i, values[i % values.size()]);
  }
  return bytes;
}

// The findings of q, k and v.
std::vector<ModuleCheck> JudgedLayer(const LayerExample& layer) {
  TestCheckpoint checkpoint;
  const std::string parent = "model.layers.0.";
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape,
                       std::vector<std::byte> bytes) {
    checkpoint.tensors.push_back(
        {.name = name, .dtype = "BF16", .shape = shape, .bytes = std::move(bytes), .shard = 0});
  };
  add(parent + "input_layernorm.weight", {kChannels}, Stored(Energies(layer.parts[0])));
  add(parent + "post_attention_layernorm.weight", {kChannels}, Stored(Energies(layer.parts[1])));
  add("model.embed_tokens.weight", {kTokens, kChannels}, Stored(Energies(layer.parts[2]), kTokens));
  const TempFolder folder;
  checkpoint.Write(folder / "source");
  const Checkpoint opened = Value(Checkpoint::Open(folder / "source"));
  std::vector<ModuleCheck> modules(3);
  modules[0].module = parent + "self_attn.q_proj";
  modules[1].module = parent + "self_attn.k_proj";
  modules[2].module = parent + "self_attn.v_proj";
  RequireOk(JudgeHiddenChannels(
      opened, {Energies(layer.parts[3]), Energies(layer.parts[4]), Energies(layer.values)},
      modules));
  return modules;
}

TEST_CASE("Input channels in another order than those of all else in a layer are found") {
  LayerExample layer;
  for (const ModuleCheck& module : JudgedLayer(layer)) CHECK(module.findings.empty());
  layer.values = ReversedByFours(layer.values);
  const std::vector<ModuleCheck> reversed = JudgedLayer(layer);
  CHECK(reversed[0].findings.empty());
  CHECK(reversed[1].findings.empty());
  REQUIRE(reversed[2].findings.size() == 1);
  CHECK(reversed[2].findings[0].id == "codes-unlike-weights");
  CHECK(reversed[2].findings[0].message.find("but reversed by fours by 0.") != std::string::npos);
}

TEST_CASE("Input channels that nothing tells are in no wrong order") {
  LayerExample layer(0);
  layer.values = ReversedByFours(layer.values);
  for (const ModuleCheck& module : JudgedLayer(layer)) CHECK(module.findings.empty());
  // Norms of ones, as some models begin with, tell nothing.
  layer = LayerExample();
  for (std::vector<float>& part : layer.parts) part.assign(kChannels, 0);
  layer.values = ReversedByFours(layer.values);
  for (const ModuleCheck& module : JudgedLayer(layer)) CHECK(module.findings.empty());
}

}  // namespace
}  // namespace prepack::testing
