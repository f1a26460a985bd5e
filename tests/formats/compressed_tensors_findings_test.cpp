// What is odd about a checkpoint, but does not keep it from being read.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/defects.h"
#include "formats/read_helpers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::AsymmetricExample;
using testing::CheckError;
using testing::ExampleWeights;
using testing::Hex;
using testing::Int64s;
using testing::kExampleModule;
using testing::SymmetricExample;
using testing::TestCheckpoint;
using testing::Value;

struct CtFinding {
  std::string name;
  TestCheckpoint (*good)();
  void (*change)(TestCheckpoint& stored);
  std::string where;
  std::string message;  // "" for no finding at all
  std::string id{};
};

Json& QuantizationConfigOf(TestCheckpoint& stored) {
  return stored.config["quantization_config"];
}

const std::vector<CtFinding>& Cases() {
  using T = TestCheckpoint&;
  static const std::vector<CtFinding> cases = {
      {"nothing", AsymmetricExample, [](T) {}, "", ""},
      {"the config says int-quantized", SymmetricExample,
       [](T t) { QuantizationConfigOf(t)["config_groups"]["group_0"]["format"] = "int-quantized"; },
       kExampleModule, "the config says format int-quantized, the tensors are pack-quantized",
       "module-format-mismatch"},
      {"a scale for dynamic activations", SymmetricExample,
       [](T t) {
         QuantizationConfigOf(t)["config_groups"]["group_0"]["input_activations"] = {
             {"strategy", "token"}, {"dynamic", true}};
         t.tensors.push_back({kExampleModule + ".input_scale", "BF16", {1}, Hex("80 3f")});
       },
       kExampleModule + ".input_scale",
       "not used: the config says that activations are quantized at run time", "input-unneeded"},
      {"the ignore list names the module", SymmetricExample,
       [](T t) { QuantizationConfigOf(t)["ignore"].push_back("re:.*up_proj"); }, kExampleModule,
       "the ignore list names the module, but it is quantized", "module-ignored-but-quantized"},
      {"an entry that matches nothing", SymmetricExample,
       [](T t) { QuantizationConfigOf(t)["ignore"].push_back("model.layers.0.mlp.gate"); },
       "config.json: quantization_config.ignore",
       "1 of 2 entries match no module of the checkpoint: \"model.layers.0.mlp.gate\"",
       "config-pattern-unmatched"},
      {"an entry that matches the parent of a module", SymmetricExample,
       [](T t) { QuantizationConfigOf(t)["ignore"].push_back("model.layers.0"); }, "", ""},
      {"a head that is neither stored nor tied", SymmetricExample,
       [](T t) { t.config["tie_word_embeddings"] = false; },
       "config.json: quantization_config.ignore",
       "1 of 1 entries match no module of the checkpoint: \"lm_head\"", "config-pattern-unmatched"},
      {"a target that matches nothing", SymmetricExample,
       [](T t) {
         QuantizationConfigOf(t)["config_groups"]["group_0"]["targets"].push_back("re:vision.*");
       },
       "config.json: quantization_config.config_groups.group_0.targets",
       "1 of 2 entries match no module of the checkpoint: \"re:vision.*\"",
       "config-pattern-unmatched"},
      {"a float layer that is a target", SymmetricExample,
       [](T t) {
         for (const char* name : {"model.layers.1.k_proj", "model.layers.1.q_proj",
                                  "vision.layers.1.q_proj", "vision.head.q_proj"}) {
           t.tensors.push_back({std::string(name) + ".weight", "BF16", {1, 2}, Hex("00 00 00 00")});
         }
       },
       "model.layers.1.k_proj", "a config group names the module, but it is not quantized",
       "module-targeted-but-plain"},
      {"rotations that are folded into the weights", SymmetricExample,
       [](T t) {
         Json apply = Json::array({{{"location", "weight_output"}, {"targets", {"re:.*v_proj$"}}},
                                   {{"location", "weight_input"}, {"inverse", true}}});
         QuantizationConfigOf(t)["transform_config"]["config_groups"]["R2"]["apply"] = apply;
       },
       "config.json: quantization_config.transform_config",
       "all rotations are of weights, and the stored weights contain them", "rotation-folded"},
      {"a float layer that is ignored", SymmetricExample,
       [](T t) {
         QuantizationConfigOf(t)["ignore"] = {"model.q_proj"};
         t.tensors.push_back({"model.q_proj.weight", "BF16", {1, 2}, Hex("00 00 00 00")});
       },
       "", ""},
      {"weight_shape is missing", SymmetricExample,
       [](T t) { t.Remove(kExampleModule + ".weight_shape"); }, kExampleModule,
       "weight_shape is missing; prepack derived K from the groups and the group size",
       "shape-recovered"},
      {"weight_shape is empty", SymmetricExample,
       [](T t) {
         t.At(kExampleModule + ".weight_shape").shape = {0};
         t.At(kExampleModule + ".weight_shape").bytes.clear();
       },
       kExampleModule,
       "weight_shape is missing; prepack derived K from the groups and the group size",
       "shape-recovered"},
      {"weight_shape is I32", SymmetricExample,
       [](T t) {
         t.At(kExampleModule + ".weight_shape").dtype = "I32";
         t.At(kExampleModule + ".weight_shape").bytes = Hex("04 00 00 00 10 00 00 00");
       },
       "", ""},
      {"zero points are missing in an old file", AsymmetricExample,
       [](T t) {
         QuantizationConfigOf(t)["version"] = "0.9.2";
         t.Remove(kExampleModule + ".weight_zero_point");
       },
       kExampleModule, "an asymmetric module has no weight_zero_point", "zero-point-recovered"},
      {"zero points are missing in a file without version", AsymmetricExample,
       [](T t) {
         QuantizationConfigOf(t).erase("version");
         t.Remove(kExampleModule + ".weight_zero_point");
       },
       kExampleModule, "an asymmetric module has no weight_zero_point", "zero-point-recovered"},
      {"zero points are left over", AsymmetricExample,
       [](T t) {
         ExampleWeights(t)["symmetric"] = true;
         t.At(kExampleModule + ".weight_zero_point").bytes = Hex("88 88 00 00 88 88 00 00");
       },
       kExampleModule, "a symmetric module has weight_zero_point", "zero-point-leftover"},
      {"a group index in natural order", SymmetricExample,
       [](T t) {
         t.tensors.push_back({kExampleModule + ".weight_g_idx",
                              "I64",
                              {16},
                              Int64s({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1})});
       },
       kExampleModule, "the group index keeps the natural order", "order-unneeded"},
      {"a group index in natural order, two by two", SymmetricExample,
       [](T t) {
         t.tensors.push_back({kExampleModule + ".weight_g_idx",
                              "I64",
                              {16},
                              Int64s({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1})});
         QuantizationConfigOf(t)["config_groups"]["group_0"]["weights"]["actorder"] = "group";
       },
       kExampleModule, "the group index keeps the natural order", "order-unneeded"},
      {"a group index that was never set", SymmetricExample,
       [](T t) {
         t.tensors.push_back({kExampleModule + ".weight_g_idx",
                              "I32",
                              {16},
                              std::vector<std::byte>(64, std::byte{0xFF})});
       },
       kExampleModule, "the group index keeps the natural order", "order-unneeded"},
      {"activation order without a group index", SymmetricExample,
       [](T t) { ExampleWeights(t)["actorder"] = "group"; }, kExampleModule,
       "the config declares act-order, but weight_g_idx is missing; prepack uses the natural order",
       "order-missing"},
      {"an unknown tensor", SymmetricExample,
       [](T t) {
         t.tensors.push_back({kExampleModule + ".smooth", "F32", {1}, Hex("00 00 00 00")});
       },
       kExampleModule + ".smooth", "unknown tensor of a quantized module; prepack copies it",
       "tensor-unknown"},
      {"a status that is wrong", SymmetricExample,
       [](T t) { QuantizationConfigOf(t)["quantization_status"] = "frozen"; },
       "config.json: quantization_config.quantization_status",
       "the status is \"frozen\", but 1 modules are stored quantized", "config-status-wrong"},
      {"a status that is missing", SymmetricExample,
       [](T t) { QuantizationConfigOf(t).erase("quantization_status"); }, "", ""},
      {"a frozen model with an ignored layer", SymmetricExample,
       [](T t) {
         QuantizationConfigOf(t)["quantization_status"] = "frozen";
         QuantizationConfigOf(t)["ignore"] = {"model.q_proj"};
         t.tensors.push_back({"model.q_proj.weight", "BF16", {1, 2}, Hex("00 00 00 00")});
       },
       "config.json: quantization_config.quantization_status", "the status is \"frozen\"",
       "config-status-wrong"},
      {"a scale by the name of another format", SymmetricExample,
       [](T t) {
         t.At(kExampleModule + ".weight_scale").name = kExampleModule + ".weight_scale_inv";
       },
       kExampleModule, "the scale is called weight_scale_inv, as in quant_method fp8",
       "scale-foreign-name"},
      {"zero points with columns behind the last group", AsymmetricExample,
       [](T t) {
         QuantizationConfigOf(t)["version"] = "0.10.2";
         t.At(kExampleModule + ".weight_zero_point").shape = {1, 3};
         t.At(kExampleModule + ".weight_zero_point").bytes =
             Hex("f8 b7 00 00 90 5a 00 00 ff ff ff ff");
       },
       kExampleModule, "the packed zero points have columns after the last group",
       "zero-point-padded"},
      {"a bias and the scale of a KV cache", SymmetricExample,
       [](T t) {
         t.tensors.push_back({kExampleModule + ".bias", "F32", {1}, Hex("00 00 00 00")});
         t.tensors.push_back({kExampleModule + ".output_scale", "F32", {1}, Hex("00 00 00 00")});
       },
       "", ""},
      {"groups that vLLM ranks differently", SymmetricExample,
       [](T t) {
         Json& groups = QuantizationConfigOf(t)["config_groups"];
         groups["z"] = groups["group_0"];
         groups["z"]["targets"] = {"re:.*mlp.*"};
         groups["a"] = groups["z"];
         groups["a"]["targets"] = {"re:.*layers.*"};
         groups["z"]["weights"]["group_size"] = 4;
       },
       kExampleModule,
       "several config groups name the module: prepack uses \"a\", as the quantizer did; vLLM uses "
       "\"z\"",
       "module-ambiguous-group"},
  };
  return cases;
}

TEST_CASE("An index that scatters the groups wins over the config") {
  TestCheckpoint stored = SymmetricExample();
  stored.tensors.push_back({kExampleModule + ".weight_g_idx",
                            "I64",
                            {16},
                            Int64s({0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1})});
  std::vector<Finding> findings = testing::FindingsOf(stored);
  REQUIRE(findings.size() == 2);
  CHECK(testing::HasFinding(findings, "order-present", ""));
  CHECK(testing::HasFinding(findings, "order-undeclared", "weight_g_idx scatters the groups"));
  ExampleWeights(stored)["actorder"] = "group";
  findings = testing::FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "order-present");
}

TEST_CASE("What is odd, but readable, is a finding") {
  for (const CtFinding& c : Cases()) {
    CAPTURE(c.name);
    TestCheckpoint stored = c.good();
    c.change(stored);
    const testing::TempFolder folder;
    stored.Write(folder.path());
    const testing::OpenedModel opened = testing::MustOpen(folder.path());
    const std::vector<Finding>& findings = opened.model.findings;
    if (c.message.empty()) {
      CHECK(findings.empty());
      continue;
    }
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].id == c.id);
    CHECK(findings[0].where == c.where);
    CHECK_THAT(findings[0].message, Catch::StartsWith(c.message));
    // Whatever is odd, the weights are those of the good checkpoint or were read as z = 0.
    (void)testing::Dequantize(opened.Module(kExampleModule), 0, 4);
  }
}

TEST_CASE("Activation order that the config does not declare is reported") {
  TestCheckpoint stored = SymmetricExample();
  stored.tensors.push_back({kExampleModule + ".weight_g_idx",
                            "I32",
                            {16},
                            Hex("01000000 00000000 01000000 00000000 01000000 00000000 01000000 "
                                "00000000 01000000 00000000 01000000 00000000 01000000 00000000 "
                                "01000000 00000000")});
  const auto ids = [](const TestCheckpoint& checkpoint) {
    const testing::TempFolder folder;
    checkpoint.Write(folder.path());
    const testing::OpenedModel opened = testing::MustOpen(folder.path());
    CHECK(Value(opened.Module(kExampleModule).KOrder())->size() == 16);
    std::vector<std::string> found;
    for (const Finding& finding : opened.model.findings) found.emplace_back(finding.id);
    return found;
  };
  CHECK(ids(stored) == std::vector<std::string>{"order-present", "order-undeclared"});
  ExampleWeights(stored)["actorder"] = "group";
  CHECK(ids(stored) == std::vector<std::string>{"order-present"});
}

TEST_CASE("A declared order that goes away while its module is in use is an error") {
  TestCheckpoint stored = SymmetricExample();
  std::vector<int64_t> groups(16);
  for (size_t k = 0; k < 16; ++k) groups[k] = k % 2 == 0 ? 1 : 0;
  stored.tensors.push_back({kExampleModule + ".weight_g_idx", "I64", {16}, Int64s(groups)});
  const testing::TempFolder folder;
  stored.Write(folder.path());
  const testing::OpenedModel opened = testing::MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kExampleModule);
  CHECK(linear.reordered());
  std::ranges::sort(groups);
  stored.tensors.back().bytes = Int64s(groups);
  stored.Write(folder.path());
  std::vector<std::byte> codes(linear.k() / 2);
  CheckError(linear.ReadCodes({.n0 = 0, .rows = 1, .k0 = 0, .cols = linear.k()}, codes),
             ErrorKind::kMalformed,
             "the order of the input channels changed while prepack used it");
}

}  // namespace
}  // namespace prepack
