#include "prepack/tune/kinds.h"

#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/regex.h"
#include "prepack/packed/packed_model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

class NamedLinear final : public QuantizedLinear {
 public:
  NamedLinear(std::string_view module, uint64_t n, uint32_t bits, uint64_t group_size = 128) {
    module_.Own(module);
    n_ = n;
    k_ = 256;
    scheme_ = Scheme{
        .code = bits == 4 ? CodeType::kU4 : CodeType::kS8, .bits = bits, .group_size = group_size};
  }
  Status ReadCodes(const PanelRange&, std::span<std::byte>) const override { return {}; }
  Status ReadScales(uint64_t, uint64_t, std::span<float>) const override { return {}; }
  Status ReadZeroPoints(uint64_t, uint64_t, std::span<uint8_t>) const override { return {}; }
};

void AddLayer(QuantizedModel& model, std::string name, uint64_t n, uint32_t bits,
              uint64_t group_size = 128) {
  model.modules.push_back(std::make_unique<NamedLinear>(std::move(name), n, bits, group_size));
}

std::vector<std::string> NamesOf(const std::vector<TuneUnit>& units) {
  std::vector<std::string> names;
  for (const TuneUnit& unit : units) names.push_back(unit.name);
  return names;
}

std::vector<std::string> ModulesOf(const TuneUnit& unit) {
  std::vector<std::string> names;
  for (const QuantizedLinear* linear : unit.modules) names.emplace_back(linear->module());
  return names;
}

// Its config.json says that tokens go through 2 experts; its tensors do not matter.
Checkpoint MixtureCheckpoint() {
  return Value(Checkpoint::Open(Fixture("checkpoints") / "ct-int8-moe"));
}

TuneKinds KindsOf(const QuantizedModel& model, const TuneSampling& sampling = {}) {
  return Value(KindsOf(MixtureCheckpoint(), model, sampling));
}

TEST_CASE("a sample goes from the first to the last") {
  CHECK(SpreadOver(32, 3) == std::vector<size_t>{0, 15, 31});
  CHECK(SpreadOver(2, 3) == std::vector<size_t>{0, 1});
  CHECK(SpreadOver(5, 1) == std::vector<size_t>{0});
  CHECK(SpreadOver(0, 3).empty());
}

TEST_CASE("modules of a role are one kind, in the order of their layers, by their shapes") {
  QuantizedModel model;
  for (const int layer : {0, 1, 10, 11, 2, 3}) {  // as names are sorted
    AddLayer(model, "model.layers." + std::to_string(layer) + ".mlp.up_proj", 512,
             layer == 11 ? 8 : 4, layer == 0 ? 64 : 128);
  }
  const TuneKinds found = KindsOf(model);
  CHECK(found.left_out.empty());
  REQUIRE(found.kinds.size() == 2);
  const TuneKind& four = found.kinds[0];
  CHECK(four.role == "model.layers.#.mlp.up_proj");
  CHECK(four.bits == 4);
  CHECK(four.modules() == 5);
  REQUIRE(four.shapes.size() == 2);
  CHECK(NamesOf(four.shapes[0].units) == std::vector<std::string>{"model.layers.0.mlp.up_proj"});
  CHECK(NamesOf(four.shapes[1].sample) == std::vector<std::string>{"model.layers.1.mlp.up_proj",
                                                                   "model.layers.2.mlp.up_proj",
                                                                   "model.layers.10.mlp.up_proj"});
  CHECK(found.kinds[1].bits == 8);
  CHECK(found.kinds[1].modules() == 1);
}

TEST_CASE("the pattern of a kind finds its modules and no others") {
  TuneKind kind;
  kind.role = "model.layers.#.mlp.up_proj";
  CHECK(kind.Pattern() == "^model\\.layers\\.[0-9]+\\.mlp\\.up_proj$");
  const auto pattern = Value(ModulePattern::Make(kind.Pattern(), "--scheme"));
  CHECK(Value(pattern.IsFor("model.layers.12.mlp.up_proj")));
  CHECK_FALSE(Value(pattern.IsFor("model.layers.12.mlp.up_proj.x")));
  CHECK_FALSE(Value(pattern.IsFor("xmodel.layers.12.mlp.up_proj")));
  CHECK_FALSE(Value(pattern.IsFor("model.layers.12.mlpxup_proj")));
  // Names come from files: what would mean something in a pattern is the character itself.
  kind.role = "a+(b)[c]#";
  CHECK(Value(Value(ModulePattern::Make(kind.Pattern(), "")).IsFor("a+(b)[c]7")));
}

TEST_CASE("the experts of a layer are one unit, and some of them its sample") {
  QuantizedModel model;
  for (const int layer : {0, 10, 2}) {
    for (const int expert : {0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9}) {
      const std::string name =
          "model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) + ".";
      AddLayer(model, name + "down_proj", 256, 4);
      AddLayer(model, name + "up_proj", 512, 4);
    }
  }
  AddLayer(model, "model.layers.0.mlp.shared_experts.up_proj", 512, 4);
  const TuneKinds found = KindsOf(model, {.layers = 2});
  CHECK(found.left_out.empty());
  REQUIRE(found.kinds.size() == 2);
  CHECK(found.kinds[1].role == "model.layers.#.mlp.shared_experts.up_proj");
  const TuneKind& kind = found.kinds[0];
  CHECK(kind.role == "model.layers.#.mlp.experts");
  CHECK(kind.modules() == 72);
  REQUIRE(kind.shapes.size() == 1);
  CHECK(kind.shapes[0].experts == 12);
  CHECK(kind.shapes[0].top_k == 2);
  CHECK(kind.shapes[0].n() == 256);
  CHECK(NamesOf(kind.shapes[0].units) == std::vector<std::string>{"model.layers.0.mlp.experts",
                                                                  "model.layers.2.mlp.experts",
                                                                  "model.layers.10.mlp.experts"});
  REQUIRE(kind.shapes[0].sample.size() == 2);
  CHECK(ModulesOf(kind.shapes[0].sample[1]) ==
        std::vector<std::string>{
            "model.layers.10.mlp.experts.0.down_proj", "model.layers.10.mlp.experts.0.up_proj",
            "model.layers.10.mlp.experts.11.down_proj", "model.layers.10.mlp.experts.11.up_proj"});
  const auto pattern = Value(ModulePattern::Make(kind.Pattern(), "--scheme"));
  CHECK(Value(pattern.IsFor("model.layers.2.mlp.experts.7.up_proj")));
  CHECK(Value(pattern.IsFor("model.layers.2.mlp.experts.up_proj.7")));
  CHECK_FALSE(Value(pattern.IsFor("model.layers.2.mlp.shared_experts.up_proj")));
}

TEST_CASE("experts that no op runs together are left out, with the reason") {
  QuantizedModel model;
  AddLayer(model, "a.experts.0.up_proj", 512, 4);
  AddLayer(model, "a.experts.1.up_proj", 256, 4);
  AddLayer(model, "experts.up_proj", 256, 4);
  const TuneKinds found = KindsOf(model);
  CHECK(found.kinds.empty());
  REQUIRE(found.left_out.size() == 2);
  CHECK(found.left_out.at("a.experts") == "its experts differ in their sizes or schemes");
  CHECK(found.left_out.at("experts.up_proj") ==
        "an expert under a name that says neither which nor of what");
  QuantizedModel sound;
  AddLayer(sound, "a.experts.0.up_proj", 512, 4);
  const Checkpoint dense = Value(Checkpoint::Open(Fixture("checkpoints") / "ct-w4a16-g128-sym"));
  CHECK(Value(KindsOf(dense, sound, {})).left_out.at("a.experts") ==
        "config.json does not say how many experts a token goes through");
}

TEST_CASE("how many experts a token goes through") {
  CHECK(ExpertsPerToken({{"num_experts_per_tok", 8}}) == 8);
  CHECK(ExpertsPerToken({{"text_config", {{"experts_per_token", 4}}}}) == 4);
  CHECK(ExpertsPerToken({{"num_experts_per_tok", "8"}}) == 0);
  CHECK(ExpertsPerToken({{"num_experts_per_tok", -1}}) == 0);
  CHECK(ExpertsPerToken({{"text_config", 3}}) == 0);
}

TEST_CASE("what runtimes fuse is one kind, if that is asked for") {
  const Checkpoint checkpoint =
      Value(Checkpoint::Open(Fixture("checkpoints") / "ct-w4a16-g128-sym"));
  const QuantizedModel model = Value(ReadSourceModel(checkpoint, {}));
  CHECK(Value(KindsOf(checkpoint, model, {})).kinds.size() == 7);
  const TuneKinds found = Value(KindsOf(checkpoint, model, {.fuse = true}));
  REQUIRE(found.kinds.size() == 4);
  const TuneKind& kind = found.kinds[3];
  CHECK(kind.role == "model.layers.#.self_attn.qkv_proj");
  CHECK(kind.sort == TuneUnitSort::kFused);
  CHECK(kind.shapes[0].n() == 384 + 128 + 128);
  CHECK(kind.modules() == 3);
  CHECK(kind.Pattern() == "^model\\.layers\\.[0-9]+\\.self_attn\\.(q_proj|k_proj|v_proj)$");
  const auto pattern = Value(ModulePattern::Make(kind.Pattern(), "--scheme"));
  CHECK(Value(pattern.IsFor("model.layers.0.self_attn.k_proj")));
  CHECK_FALSE(Value(pattern.IsFor("model.layers.0.self_attn.o_proj")));
}

}  // namespace
}  // namespace prepack::testing
