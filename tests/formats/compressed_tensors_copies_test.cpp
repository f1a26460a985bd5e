#include "prepack/formats/compressed_tensors/config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/defects.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// The status of two copies, of which the second was changed.
Result<ct::Config> ParseChanged(void (*change)(Json& copy, Json& group)) {
  const Json config = ExampleConfig(true);
  const Json& first = config["quantization_config"];
  Json second = first;
  change(second, second["config_groups"]["group_0"]);
  return ct::ParseConfigs(std::vector<QuantizationConfig>{
      {"config.json: quantization_config", "compressed-tensors", &first},
      {"config.json: compression_config", "compressed-tensors", &second}});
}

TEST_CASE("copies of a compressed-tensors config that mean other weights are refused") {
  struct Case {
    void (*change)(Json& copy, Json& group);
    std::string text;
  };
  using J = Json&;
  const std::vector<Case> cases = {
      {[](J, J g) { g["weights"]["group_size"] = 16; },
       "compression_config.config_groups.group_0.weights: two copies of the quantization config "
       "disagree (found 4-bit int group 16 symmetric, expected 4-bit int group 8 symmetric, as "
       "config.json: quantization_config says)"},
      {[](J, J g) { g["weights"]["symmetric"] = false; }, "found 4-bit int group 8 asymmetric"},
      {[](J, J g) { g["weights"] = nullptr; },
       "group_0.weights: two copies of the quantization "
       "config disagree (found none"},
      {[](J, J g) {
         g["targets"] = {"a", "b", "c", "d", "e"};
       },
       "group_0.targets: two copies of the quantization config disagree (found [\"a\", \"b\", "
       "\"c\", \"d\", …], expected [\"Linear\"], as"},
      {[](J, J g) {
         g["input_activations"] = {{"strategy", "token"}, {"dynamic", true}};
       },
       "group_0.input_activations: two copies of the quantization config disagree (found 8-bit int "
       "token symmetric, expected none"},
      {[](J, J g) {
         g["output_activations"] = {{"strategy", "tensor"}};
       },
       "group_0.output_activations: two copies"},
      {[](J, J g) { g["format"] = "int-quantized"; },
       "group_0.format: two copies of the quantization config disagree (found int-quantized, "
       "expected pack-quantized"},
      {[](J c, J) { c["config_groups"]["more"] = c["config_groups"]["group_0"]; },
       "config_groups: two copies of the quantization config disagree (found 2 groups, expected 1 "
       "groups"},
      {[](J c, J) { c["version"] = "0.17.1"; },
       "version: two copies of the quantization config disagree (found 0.17.1, expected 0.19.0"},
  };
  for (const Case& c : cases) {
    const Result<ct::Config> config = ParseChanged(c.change);
    CheckError(config.status(), ErrorKind::kMalformed, c.text);
    CHECK(config.status().id() == "config-conflict");
  }
}

TEST_CASE("copies may differ in what says nothing of the weights") {
  RequireOk(ParseChanged([](Json&, Json&) {}).status());
  RequireOk(ParseChanged([](Json& c, Json&) { c["ignore"] = Json::array(); }).status());
  RequireOk(ParseChanged([](Json& c, Json&) { c["version"] = "0.18.0"; }).status());
  RequireOk(ParseChanged([](Json& c, Json&) { c.erase("version"); }).status());
  RequireOk(ParseChanged([](Json& c, Json&) { c["quantization_status"] = "frozen"; }).status());
  RequireOk(ParseChanged([](Json&, Json& g) { g["weights"]["observer"] = "mse"; }).status());
}

TEST_CASE("the order of groups is no difference, and a version is taken from where it is") {
  Json config = ExampleConfig(true)["quantization_config"];
  Json& groups = config["config_groups"];
  groups["a"] = groups["group_0"];
  groups["a"]["targets"] = {"re:.*mlp.*"};
  Json sorted = config;
  sorted["config_groups"] = {{"a", groups["a"]}, {"group_0", groups["group_0"]}};
  config.erase("version");
  const Result<ct::Config> parsed = ct::ParseConfigs(std::vector<QuantizationConfig>{
      {"one", "compressed-tensors", &config}, {"two", "compressed-tensors", &sorted}});
  RequireOk(parsed.status());
  CHECK(parsed->groups[0].name == "group_0");
  CHECK(parsed->version == ct::Version{{0, 19, 0}});
}

TEST_CASE("every copy is refused for what it says by itself") {
  const Result<ct::Config> config = ParseChanged([](Json& c, Json&) {
    c["transform_config"] = {{"config_groups", {{"R1", 1}}}};
  });
  CheckError(config.status(), ErrorKind::kUnsupported, "compression_config.transform_config");
  CHECK(config.status().id() == "rotation");
}

TEST_CASE("a copy beside config.json is compared, too") {
  const TempFolder folder;
  SymmetricExample().Write(folder.path());
  Json copy = ExampleConfig(true)["quantization_config"];
  std::ofstream(folder / "quantization_config.json") << copy;
  RequireOk(ReadEverything(folder.path()));
  copy["config_groups"]["group_0"]["weights"]["group_size"] = 4;
  std::ofstream(folder / "quantization_config.json") << copy;
  CheckError(ReadEverything(folder.path()), ErrorKind::kMalformed,
             "quantization_config.json.config_groups.group_0.weights: two copies");
}

}  // namespace
}  // namespace prepack::testing
