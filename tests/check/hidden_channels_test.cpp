// Modules whose input channels are told by all else in a layer, though by nothing alone.

#include "prepack/check/model_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "check/check_run.h"
#include "prepack/check/channel_orders.h"
#include "prepack/container/checkpoint.h"

namespace prepack::testing {
namespace {

constexpr size_t kTokens = 8;

std::vector<float> Bell(size_t channels, SplitMix64& random) {
  std::vector<float> values(channels);
  for (float& value : values) value = static_cast<float>(random.Gaussian());
  return values;
}

std::vector<float> Energies(const std::vector<float>& logarithms) {
  std::vector<float> energies(logarithms.size());
  std::ranges::transform(logarithms, energies.begin(), [](float x) { return std::exp(x); });
  return energies;
}

std::vector<std::byte> Stored(const std::vector<float>& values, size_t times = 1) {
  std::vector<std::byte> bytes(2 * times * values.size());
  for (size_t i = 0; i < times * values.size(); ++i) {
    PutBF16(bytes, i, values[i % values.size()]);
  }
  return bytes;
}

// Of modules of one layer. A check only views them.
const std::vector<std::string>& ModuleNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (int i = 0; i < 64; ++i) made.push_back(fmt::format("model.layers.0.self_attn.proj_{}", i));
    return made;
  }();
  return names;
}

// Two norms and an embedding, of these logarithms.
class LayerFolder {
 public:
  explicit LayerFolder(const std::vector<std::vector<float>>& parts) {
    TestCheckpoint checkpoint;
    const uint64_t channels = parts[0].size();
    const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape,
                         std::vector<std::byte> bytes) {
      checkpoint.tensors.push_back(
          {.name = name, .dtype = "BF16", .shape = shape, .bytes = std::move(bytes), .shard = 0});
    };
    add("model.layers.0.input_layernorm.weight", {channels}, Stored(Energies(parts[0])));
    add("model.layers.0.post_attention_layernorm.weight", {channels}, Stored(Energies(parts[1])));
    add("model.embed_tokens.weight", {kTokens, channels}, Stored(Energies(parts[2]), kTokens));
    checkpoint.Write(folder_ / "source");
    opened_.emplace(Value(Checkpoint::Open(folder_ / "source")));
  }

  // What is found in modules of this layer, whose input channels have these logarithms of energies.
  std::vector<ModuleCheck> Judged(const std::vector<std::vector<float>>& logarithms) const {
    std::vector<ModuleCheck> modules(logarithms.size());
    std::vector<std::vector<float>> energies;
    for (size_t i = 0; i < modules.size(); ++i) {
      modules[i].module = ModuleNames().at(i);
      energies.push_back(Energies(logarithms[i]));
    }
    RequireOk(JudgeHiddenChannels(*opened_, energies, modules));
    return modules;
  }

 private:
  TempFolder folder_;
  std::optional<Checkpoint> opened_;
};

// Two norms, an embedding and two modules that have nothing in common, and a third module that has
// something of each.
struct LayerExample {
  std::vector<std::vector<float>> parts;
  std::vector<float> values;  // of the third module

  explicit LayerExample(double share = 1, size_t channels = 512) {
    SplitMix64 random(3);
    values = Bell(channels, random);
    for (size_t i = 0; i < 5; ++i) {
      parts.push_back(Bell(channels, random));
      for (size_t k = 0; k < channels; ++k) {
        values[k] += static_cast<float>(0.3 * share) * parts[i][k];
      }
    }
  }

  std::vector<ModuleCheck> Judged() const {
    return LayerFolder(parts).Judged({parts[3], parts[4], values});
  }
};

// What is stored if this order puts it right.
std::vector<float> InWrongOrder(const ChannelOrder& order, const std::vector<float>& values) {
  const std::vector<uint32_t> places = PlacesOf(order, values.size());
  std::vector<float> stored(values.size());
  for (size_t i = 0; i < values.size(); ++i) stored[places[i]] = values[i];
  return stored;
}

TEST_CASE("input channels in another order than those of all else in a layer are found") {
  // The fewer channels there are, the more they must have in common to tell an order.
  const auto [channels, share] =
      GENERATE(table<size_t, double>({{128, 2.5}, {256, 1.5}, {512, 1}, {1024, 1}}));
  CAPTURE(channels);
  const LayerExample sound(share, channels);
  for (const ModuleCheck& module : sound.Judged()) CHECK(module.findings.empty());
  for (const ChannelOrder& order : WrongOrders()) {
    CAPTURE(order.name);
    LayerExample layer = sound;
    layer.values = InWrongOrder(order, sound.values);
    const std::vector<ModuleCheck> moved = layer.Judged();
    CHECK(moved[0].findings.empty());
    CHECK(moved[1].findings.empty());
    REQUIRE(moved[2].findings.size() == 1);
    CHECK(moved[2].findings[0].id == "codes-unlike-weights");
    CHECK(moved[2].findings[0].message.find("but " + std::string(order.name) + " by 0.") !=
          std::string::npos);
  }
}

TEST_CASE("input channels that nothing tells are in no wrong order") {
  LayerExample layer(0);
  for (const ModuleCheck& module : layer.Judged()) CHECK(module.findings.empty());
  // Norms of ones, as some models begin with, tell nothing.
  layer = LayerExample();
  for (std::vector<float>& part : layer.parts) part.assign(part.size(), 0);
  layer.values = InWrongOrder(WrongOrders()[1], layer.values);
  for (const ModuleCheck& module : layer.Judged()) CHECK(module.findings.empty());
}

TEST_CASE("random weights are in no wrong order, however few channels they have") {
  const size_t channels = GENERATE(128, 256, 512, 1024);
  CAPTURE(channels);
  constexpr size_t kModels = 400;
  constexpr size_t kModules = 8;
  SplitMix64 random(channels);
  std::vector<std::vector<float>> parts;
  for (size_t i = 0; i < 3; ++i) parts.push_back(Bell(channels, random));
  const LayerFolder layer(parts);
  std::vector<std::string> alarms;
  for (size_t model = 0; model < kModels; ++model) {
    std::vector<std::vector<float>> modules;
    for (size_t i = 0; i < kModules; ++i) modules.push_back(Bell(channels, random));
    for (const ModuleCheck& module : layer.Judged(modules)) {
      for (const Finding& finding : module.findings) alarms.push_back(finding.message);
    }
  }
  CHECK(alarms == std::vector<std::string>{});
}

TEST_CASE("the chance to explain variance is never below that of the distributions") {
  struct Tail {
    double explained = 0;
    size_t columns = 0;
    size_t channels = 0;
    double normal = 0;  // scipy.stats.beta.sf: of values that are normal
    double square = 0;  // scipy.stats.chi2.sf: of values whose length is not known
  };
  const Tail tail = GENERATE(
      Tail{0.2, 2, 128, 8.773e-07, 3.051e-06}, Tail{0.236, 8, 128, 6.644e-05, 0.0002138},
      Tail{0.4, 8, 128, 1.687e-10, 2.867e-08}, Tail{0.5, 15, 128, 3.234e-11, 6.249e-08},
      Tail{0.15, 5, 256, 9.969e-08, 3.361e-07}, Tail{0.2132, 10, 256, 4.162e-09, 4.147e-08},
      Tail{0.1, 8, 576, 4.552e-10, 1.438e-09}, Tail{0.02, 8, 4096, 1.443e-14, 2.025e-14},
      Tail{0.001, 12, 65536, 2.147e-09, 2.171e-09});
  CAPTURE(tail.explained, tail.columns, tail.channels);
  const double bound = ChanceToExplain(tail.explained, tail.columns, tail.channels);
  CHECK(bound >= tail.normal);
  CHECK(bound >= tail.square);
  CHECK(bound <= 60 * tail.square);
}

TEST_CASE("what chance explains anyway is no sign of anything") {
  CHECK(ChanceToExplain(0, 8, 128) == 1);
  CHECK(ChanceToExplain(0.05, 8, 128) == 1);  // less than eight columns explain on average
  CHECK(ChanceToExplain(0.5, 0, 128) == 1);
  CHECK(ChanceToExplain(0.2, 8, 128) < ChanceToExplain(0.19, 8, 128));
  CHECK(ChanceToExplain(0.2, 8, 256) < ChanceToExplain(0.2, 8, 128));
  CHECK(ChanceToExplain(0.2, 9, 128) > ChanceToExplain(0.2, 8, 128));
}

}  // namespace
}  // namespace prepack::testing
