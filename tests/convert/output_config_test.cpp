#include "prepack/packed/output_config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prepack/container/json.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

Scheme Groups(uint64_t group_size) {
  return {.code = CodeType::kU4,
          .bits = 4,
          .granularity = Granularity::kGroup,
          .group_size = group_size,
          .symmetric = true};
}

Scheme Channels(uint64_t k) {
  Scheme scheme = Groups(k);
  scheme.granularity = Granularity::kChannel;
  return scheme;
}

const Scheme kGroups32 = Groups(32);
const Scheme kGroups128 = Groups(128);
const Scheme kGroups64 = Groups(64);
const Scheme kChannels64 = Channels(64);
const Scheme kChannels128 = Channels(128);

Json QuantizationOf(const std::vector<PackedScheme>& modules) {
  Manifest manifest;
  manifest.target = "vllm-cpu";
  manifest.source_quantization_config = {{"quant_method", "x"}, {"ignore", {"lm_head"}}};
  manifest.kept = {{"m.kept", "because"}};
  return OutputQuantization(manifest, modules);
}

TEST_CASE("the config names the layout of most modules, and the others as exceptions") {
  const Json config = QuantizationOf({{"m.a", "x/one", &kGroups32},
                                      {"m.b", "x/two", &kGroups128},
                                      {"m.c", "x/two", &kGroups128},
                                      {"m.d", "x/one", &kGroups64}});
  CHECK(config.at("quant_method") == "prepack");
  CHECK(config.at("target") == "vllm-cpu");
  CHECK(config.at("layout") == "x/two");
  CHECK(config.at("group_size") == 128);
  REQUIRE(config.at("exceptions").size() == 2);
  CHECK(config.at("exceptions").begin().key() == "m.a");
  CHECK(config.at("exceptions").at("m.a").at("group_size") == 32);
  CHECK(config.at("exceptions").at("m.d").at("layout") == "x/one");
  CHECK(config.at("kept") == Json{"m.kept"});
  CHECK(config.at("ignore") == Json{"lm_head"});
  CHECK(config.at("source").at("quant_method") == "x");
}

TEST_CASE("of two layouts that are as common the first counts") {
  const Json config = QuantizationOf({{"m.a", "x/one", &kGroups32}, {"m.b", "x/two", &kGroups32}});
  CHECK(config.at("layout") == "x/one");
  CHECK(config.at("exceptions").size() == 1);
}

TEST_CASE("modules with a scale per channel are alike whatever their size") {
  const Json config =
      QuantizationOf({{"m.a", "x/one", &kChannels64}, {"m.b", "x/one", &kChannels128}});
  CHECK(config.at("group_size") == -1);
  CHECK(config.at("exceptions").empty());
}

TEST_CASE("a config without packed modules says nothing of layouts") {
  const Json config = QuantizationOf({});
  CHECK_FALSE(config.contains("layout"));
  CHECK(config.at("exceptions").empty());
}

// The output's config.json without its own declaration, which must be there.
std::string RestOf(const std::string& source) {
  Manifest manifest;
  manifest.source_quantization_config = Json::object();
  const std::string text = OutputConfigText(source, manifest, OwnRecords(manifest), {});
  CAPTURE(text);
  const Json config = Value(ParseJsonStrict(text, "config.json", {.python_numbers = true}));
  CHECK(config.at("quantization_config").at("quant_method") == "prepack");
  const std::vector<std::string> path = {"quantization_config"};
  return Reindented(WithoutMember(text, path), 0);
}

TEST_CASE("values that pass through keep their text, and their order") {
  const std::string kept = R"({
  "model_max_length": 1000000000000000019884624838656,
  "least": -123456789012345678901234567890,
  "zero": -0,
  "zeros": [
    -0.0,
    0.10,
    1E5,
    1e+5,
    1e400,
    -1e-400,
    123456789.123456789123456789
  ],
  "nan": NaN,
  "infinite": -Infinity,
  "text": "\u00e9 \/ \ud83d\ude00 {,:[\" é",
  "a\u0062c": {
    "b": {},
    "a": [],
    "none": null
  },
  "true": true
})";
  CHECK(RestOf(kept) == kept);
  CHECK(RestOf("{}") == "{}");
  // Only the space between values changes.
  std::string narrow = kept;
  std::erase(narrow, '\n');
  CHECK(RestOf(narrow) == kept);
}

TEST_CASE("declarations are taken out of the text wherever the readers find them") {
  const auto check = [](const std::string& source, const std::string& rest) {
    CHECK(RestOf(source) == Reindented(rest, 0));
  };
  check(R"({"a":1,"quantization_config":{"x":[1,{}]},"b":2})", R"({"a":1,"b":2})");
  check(R"({"compression_config":{"x":1},"b":-0})", R"({"b":-0})");
  check(R"({"text_config":{"quantization_config":{"x":1},"n":1e5}})",
        R"({"text_config":{"n":1e5}})");
  check(R"({"o":{"t":{"quantization_config":{"x":1}}}})", R"({"o":{"t":{}}})");
  check(R"({"quantizat\u0069on_config":{"x":1},"b":2})", R"({"b":2})");
}

}  // namespace
}  // namespace prepack::testing
