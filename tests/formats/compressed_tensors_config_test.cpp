#include "prepack/formats/compressed_tensors/config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

Result<ct::Config> ParseFields(const Json& fields) {
  return ct::ParseConfig({"config.json: quantization_config", "compressed-tensors", &fields});
}

// A config as llm-compressor writes it.
Json GoodConfig() {
  return Json::parse(R"({
    "config_groups": {
      "group_0": {
        "format": "pack-quantized",
        "input_activations": null,
        "output_activations": null,
        "targets": ["Linear"],
        "weights": {
          "actorder": null, "block_structure": null, "dynamic": false, "group_size": 128,
          "num_bits": 4, "observer": "minmax", "observer_kwargs": {}, "scale_dtype": null,
          "strategy": "group", "symmetric": true, "type": "int", "zp_dtype": null
        }
      }
    },
    "format": "pack-quantized",
    "global_compression_ratio": null,
    "ignore": ["lm_head", "re:.*gate$"],
    "kv_cache_scheme": null,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
    "sparsity_config": {},
    "transform_config": {},
    "version": "0.19.0"
  })");
}

ct::Config Good(const Json& fields) {
  Result<ct::Config> config = ParseFields(fields);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  return *std::move(config);
}

TEST_CASE("a config is parsed into groups, formats and patterns") {
  const ct::Config config = Good(GoodConfig());
  CHECK(config.version == ct::Version{{0, 19, 0}});
  CHECK(config.status == "compressed");
  CHECK_FALSE(config.has_kv_cache_scheme);
  REQUIRE(config.ignore.size() == 2);
  CHECK(config.ignore[1].text() == "re:.*gate$");
  REQUIRE(config.groups.size() == 1);
  const ct::Group& group = config.groups[0];
  CHECK(group.where == "config.json: quantization_config.config_groups.group_0");
  CHECK(group.format == "pack-quantized");
  REQUIRE(group.targets.size() == 1);
  CHECK(group.targets[0].text() == "Linear");
  REQUIRE(group.weights);
  CHECK(ct::DescribeArgs(*group.weights) == "4-bit int group 128 symmetric");
  CHECK_FALSE(group.input_activations);
}

TEST_CASE("missing and null fields take the defaults of compressed-tensors") {
  Json fields = GoodConfig();
  for (const char* key : {"version", "ignore", "sparsity_config", "transform_config", "format",
                          "quantization_status"}) {
    fields.erase(key);
  }
  Json& group = fields["config_groups"]["group_0"];
  group.erase("format");
  group["weights"] = {{"num_bits", 4}, {"group_size", 32}};
  const ct::Config config = Good(fields);
  CHECK_FALSE(config.version);
  CHECK(config.ignore.empty());
  CHECK(config.groups[0].format == "pack-quantized");  // inferred
  CHECK(ct::DescribeArgs(*config.groups[0].weights) == "4-bit int group 32 symmetric");

  fields["ignore"] = nullptr;
  CHECK(Good(fields).ignore.empty());
}

TEST_CASE("the strategy follows from the group size when it is missing") {
  const auto strategy = [](const Json& group_size) {
    const Result<ct::Args> args =
        ct::ParseArgs({{"num_bits", 4}, {"group_size", group_size}}, ct::Role::kWeights, "weights");
    REQUIRE(args.ok());
    return args->strategy;
  };
  CHECK(strategy(nullptr) == ct::Strategy::kTensor);
  CHECK(strategy(64) == ct::Strategy::kGroup);
  CHECK(strategy(-1) == ct::Strategy::kChannel);
}

TEST_CASE("legacy spellings mean the same") {
  const Result<ct::Args> args = ct::ParseArgs({{"num_bits", 8},
                                               {"type", "FLOAT"},
                                               {"strategy", "Block"},
                                               {"block_structure", "128x64"},
                                               {"actorder", "static"}},
                                              ct::Role::kWeights, "weights");
  REQUIRE(args.ok());
  CHECK(ct::DescribeArgs(*args) == "8-bit float block 128x64 symmetric");
  CHECK(args->actorder == ct::ActOrder::kWeight);
  const auto actorder = [](const Json& value) {
    const Result<ct::Args> parsed =
        ct::ParseArgs({{"group_size", 8}, {"actorder", value}}, ct::Role::kWeights, "weights");
    REQUIRE(parsed.ok());
    return parsed->actorder;
  };
  CHECK(actorder(true) == ct::ActOrder::kGroup);
  CHECK(actorder(false) == ct::ActOrder::kNone);
  CHECK(actorder("dynamic") == ct::ActOrder::kGroup);
  CHECK(actorder("Weight") == ct::ActOrder::kWeight);
}

TEST_CASE("a list-valued group is a preset") {
  Json fields = GoodConfig();
  fields["config_groups"] = {{"w4a16", {"Linear"}}, {"W4A16_ASYM", {"re:.*mlp.*"}}};
  const ct::Config config = Good(fields);
  CHECK(ct::DescribeArgs(*config.groups[0].weights) == "4-bit int group 128 symmetric");
  CHECK(ct::DescribeArgs(*config.groups[1].weights) == "4-bit int group 128 asymmetric");
  CHECK(config.groups[1].targets[0].text() == "re:.*mlp.*");

  const auto described = [](std::string_view name) {
    const std::optional<ct::Preset> preset = ct::FindPreset(name);
    REQUIRE(preset);
    return ct::DescribeArgs(preset->weights) +
           (preset->input_activations ? " + " + ct::DescribeArgs(*preset->input_activations) : "");
  };
  CHECK(described("W8A8") == "8-bit int channel symmetric + 8-bit int token symmetric");
  CHECK(described("INT8") == described("W8A8"));
  CHECK(described("W4A8") == "4-bit int group 128 symmetric + 8-bit int token symmetric");
  CHECK(described("W4AFP8") == "4-bit int group 128 symmetric + 8-bit float token symmetric");
  CHECK(described("W3A16") == "3-bit int group 128 symmetric");
  CHECK(described("FP8") == "8-bit float tensor symmetric + 8-bit float tensor symmetric");
  CHECK(described("FP8_DYNAMIC") == "8-bit float channel symmetric + 8-bit float token symmetric");
  CHECK(described("FP8_BLOCK") ==
        "8-bit float block 128x128 symmetric + 8-bit float group 128 symmetric");
  CHECK_FALSE(ct::FindPreset("W9A16"));
  CHECK_FALSE(ct::FindPreset("group_0"));
}

TEST_CASE("the format of a group is its own, else that of the file, else inferred") {
  Json fields = GoodConfig();
  Json& group = fields["config_groups"]["group_0"];
  const auto format = [&] { return Good(fields).groups[0].format; };
  fields["format"] = "mixed-precision";
  CHECK(format() == "pack-quantized");
  group.erase("format");
  CHECK(format() == "pack-quantized");
  group["input_activations"] = {{"dynamic", true}, {"strategy", "token"}};
  CHECK(format() == "int-quantized");
  fields["format"] = "naive-quantized";
  CHECK(format() == "naive-quantized");
  fields["format"] = "dense";
  group["weights"] = {{"type", "float"}, {"strategy", "channel"}};
  CHECK(format() == "float-quantized");
  group["weights"] = {{"type", "float"}, {"num_bits", 4}, {"group_size", 32}};
  CHECK(format() == "mxfp4-pack-quantized");
  group["weights"] = nullptr;
  CHECK(format() == "dense");
}

TEST_CASE("versions are compared by number") {
  CHECK(ct::ParseVersion("0.19.0") == ct::Version{{0, 19, 0}});
  CHECK(ct::ParseVersion("0.9.3.dev1") == ct::Version{{0, 9, 3}});
  CHECK(ct::ParseVersion("0.15.1a2") == ct::Version{{0, 15, 1}});
  CHECK(ct::ParseVersion("1.2") == ct::Version{{1, 2, 0}});
  CHECK_FALSE(ct::ParseVersion("1"));
  CHECK_FALSE(ct::ParseVersion(""));
  CHECK_FALSE(ct::ParseVersion("x.1"));
  CHECK_FALSE(ct::ParseVersion("99999999999.1"));
  CHECK(*ct::ParseVersion("0.9.2") < *ct::ParseVersion("0.10.0"));
}

TEST_CASE("configs that contradict themselves or are not known are errors") {
  struct Case {
    std::string name;
    void (*break_it)(Json& fields, Json& group, Json& weights);
    ErrorKind kind;
    std::string text;
    std::string id = "config-field-invalid";
  };
  using J = Json&;
  const ErrorKind malformed = ErrorKind::kMalformed;
  const ErrorKind unsupported = ErrorKind::kUnsupported;
  const std::vector<Case> cases = {
      {"groups are a list", [](J f, J, J) { f["config_groups"] = Json::array(); }, malformed,
       "config_groups: the field has the wrong type (found a list of 0 values, expected an "
       "object)"},
      {"a group is a number", [](J f, J, J) { f["config_groups"]["group_0"] = 3; }, malformed,
       "config_groups.group_0: the field has the wrong type"},
      {"an unknown preset",
       [](J f, J, J) {
         f["config_groups"] = {{"W5", {"Linear"}}};
       },
       unsupported, "unknown preset (found \"W5\"", "config-keyword-unknown"},
      {"no targets", [](J, J g, J) { g.erase("targets"); }, malformed, "no targets"},
      {"a target is a number", [](J, J g, J) { g["targets"] = {1}; }, malformed,
       "targets[0]: the field has the wrong type (found 1, expected a string)"},
      {"a target does not compile", [](J, J g, J) { g["targets"] = {"re:["}; }, malformed,
       "targets[0]: the pattern does not compile", "config-pattern-invalid"},
      {"an unknown key of a group", [](J, J g, J) { g["scales"] = 1; }, unsupported,
       "group_0: unknown key \"scales\"", "config-key-unknown"},
      {"an unknown key of the weights", [](J, J, J w) { w["grid"] = 1; }, unsupported,
       "group_0.weights: unknown key \"grid\"", "config-key-unknown"},
      {"an unknown format", [](J, J g, J) { g["format"] = "cubic"; }, unsupported,
       "group_0.format: unknown storage format (found \"cubic\")", "storage-unsupported"},
      {"mixed-precision in a group", [](J, J g, J) { g["format"] = "mixed-precision"; },
       unsupported, "unknown storage format", "storage-unsupported"},
      {"an unknown format of the file", [](J f, J, J) { f["format"] = "cubic"; }, unsupported,
       "quantization_config.format: unknown storage format", "storage-unsupported"},
      {"marlin", [](J f, J, J) { f["format"] = "marlin-24"; }, unsupported,
       "sparse weights are not supported", "storage-unsupported"},
      {"sparse",
       [](J f, J, J) {
         f["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
       },
       unsupported, "sparse weights are not supported (found \"sparse-24-bitmask\")",
       "storage-unsupported"},
      {"transforms",
       [](J f, J, J) {
         f["transform_config"] = {{"config_groups", {{"R1", 1}}}};
       },
       unsupported, "where to rotate the model", "rotation"},
      {"FP8 of Gaudi", [](J f, J, J) { f["fp8_dtype_flavor"] = "float8_e4m3fnuz"; }, unsupported,
       "float8_e4m3fnuz", "storage-unsupported"},
      {"a version that is a number", [](J f, J, J) { f["version"] = 0.19; }, malformed,
       "version: the field has the wrong type (found 0.19, expected a string)"},
      {"a version that is not one", [](J f, J, J) { f["version"] = "new"; }, malformed,
       "not a version"},
      {"ignore is a string", [](J f, J, J) { f["ignore"] = "lm_head"; }, malformed,
       "ignore: the field has the wrong type"},
      {"0 bits", [](J, J, J w) { w["num_bits"] = 0; }, malformed,
       "weights.num_bits: the number of bits is out of range (found 0, expected 1 to 8 for int)"},
      {"16 bits", [](J, J, J w) { w["num_bits"] = 16; }, malformed, "found 16"},
      {"MXFP6", [](J, J, J w) { w["type"] = "float", w["num_bits"] = 6; }, unsupported,
       "MXFP6 weights are not supported", "scheme-unsupported"},
      {"7 bits float", [](J, J, J w) { w["type"] = "float", w["num_bits"] = 7; }, malformed,
       "expected 4 or 8 for float"},
      {"bits as text", [](J, J, J w) { w["num_bits"] = "4"; }, malformed,
       "num_bits: the field has the wrong type (found \"4\", expected an integer)"},
      {"an unknown type", [](J, J, J w) { w["type"] = "posit"; }, unsupported,
       "weights.type: unknown keyword (found \"posit\", expected int or float)",
       "config-keyword-unknown"},
      {"an unknown strategy", [](J, J, J w) { w["strategy"] = "row"; }, unsupported,
       "weights.strategy: unknown keyword", "config-keyword-unknown"},
      {"an unknown actorder", [](J, J, J w) { w["actorder"] = "up"; }, unsupported,
       "weights.actorder: unknown keyword", "config-keyword-unknown"},
      {"group without a size", [](J, J, J w) { w["group_size"] = nullptr; }, malformed,
       "strategy group needs a group size"},
      {"group of -1", [](J, J, J w) { w["group_size"] = -1; }, malformed,
       "strategy group needs a group size"},
      {"group size 0", [](J, J, J w) { w["group_size"] = 0; }, malformed, "not positive"},
      {"group size -2", [](J, J, J w) { w["group_size"] = -2; }, malformed, "not positive"},
      {"group size 2^63", [](J, J, J w) { w["group_size"] = 9223372036854775808ULL; }, malformed,
       "expected an integer"},
      {"channel with a size", [](J, J, J w) { w["strategy"] = "channel"; }, malformed,
       "strategy channel has no groups (found 128, expected null)"},
      {"tensor of -1", [](J, J, J w) { w["strategy"] = "tensor", w["group_size"] = -1; }, malformed,
       "contradicts the group size"},
      {"block without a size",
       [](J, J, J w) { w["strategy"] = "block", w["group_size"] = nullptr; }, malformed,
       "strategy block needs a block size"},
      {"a block of a group",
       [](J, J, J w) {
         w["block_structure"] = {128, 128};
       },
       malformed, "strategy group has no blocks"},
      {"a block of one number", [](J, J, J w) { w["block_structure"] = {128}; }, malformed,
       "not two positive numbers"},
      {"a negative block",
       [](J, J, J w) {
         w["block_structure"] = {128, -1};
       },
       malformed, "not two positive numbers"},
      {"a block of text", [](J, J, J w) { w["block_structure"] = "128x"; }, malformed,
       "not two positive numbers"},
      {"dynamic weights", [](J, J, J w) { w["dynamic"] = true; }, malformed,
       "cannot be quantized at run time"},
      {"dynamic as text", [](J, J, J w) { w["dynamic"] = "yes"; }, malformed,
       "expected true, false or \"local\""},
      {"weights per token",
       [](J, J, J w) { w["strategy"] = "token", w["group_size"] = nullptr, w["dynamic"] = false; },
       malformed, "token"},
      {"static tokens",
       [](J, J g, J) {
         g["input_activations"] = {{"strategy", "token"}};
       },
       malformed, "input_activations.dynamic: strategy token is always dynamic"},
      {"asymmetric floats",
       [](J, J, J w) { w["type"] = "float", w["num_bits"] = 8, w["symmetric"] = false; }, malformed,
       "float weights have no zero points"},
      {"activation order of a channel",
       [](J, J, J w) {
         w["strategy"] = "channel", w["group_size"] = nullptr, w["actorder"] = "group";
       },
       malformed, "no groups to order"},
      {"symmetric as text", [](J, J, J w) { w["symmetric"] = "no"; }, malformed,
       "expected true or false"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Json fields = GoodConfig();
    REQUIRE(ParseFields(fields).ok());
    Json& group = fields["config_groups"]["group_0"];
    c.break_it(fields, group, group["weights"]);
    const Result<ct::Config> config = ParseFields(fields);
    REQUIRE_FALSE(config.ok());
    CHECK(config.status().kind() == c.kind);
    CHECK_THAT(config.status().ToString(), Catch::Contains(c.text));
    CHECK(config.status().id() == c.id);
    CHECK_THAT(config.status().where(), Catch::StartsWith("config.json: quantization_config"));
  }
}

}  // namespace
}  // namespace prepack::testing
