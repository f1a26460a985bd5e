#include "prepack/tune/kinds.h"

#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/formats/regex.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

class NamedLinear final : public QuantizedLinear {
 public:
  NamedLinear(std::string module, uint64_t n, uint32_t bits, uint64_t group_size = 128) {
    module_ = std::move(module);
    n_ = n;
    k_ = 256;
    scheme_ = {
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

std::vector<std::string> NamesOf(const std::vector<const QuantizedLinear*>& modules) {
  std::vector<std::string> names;
  for (const QuantizedLinear* linear : modules) names.push_back(linear->module());
  return names;
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
  const TuneKinds found = KindsOf(model, 3);
  CHECK(found.left_out.empty());
  REQUIRE(found.kinds.size() == 2);
  const TuneKind& four = found.kinds[0];
  CHECK(four.role == "model.layers.#.mlp.up_proj");
  CHECK(four.bits == 4);
  CHECK(four.modules() == 5);
  REQUIRE(four.shapes.size() == 2);
  CHECK(NamesOf(four.shapes[0].modules) == std::vector<std::string>{"model.layers.0.mlp.up_proj"});
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

TEST_CASE("experts are left out, with the reason") {
  QuantizedModel model;
  AddLayer(model, "model.layers.0.mlp.experts.7.up_proj", 512, 4);
  const TuneKinds found = KindsOf(model, 3);
  CHECK(found.kinds.empty());
  REQUIRE(found.left_out.size() == 1);
  CHECK(found.left_out.begin()->first == "model.layers.#.mlp.experts.#.up_proj");
  CHECK(found.left_out.begin()->second.find("not measured yet") != std::string::npos);
}

}  // namespace
}  // namespace prepack::testing
