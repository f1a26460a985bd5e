#include "convert/output_config.h"

#include <nlohmann/json.hpp>

#include "catch.h"

namespace prepack {
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

Json QuantizationOf(const Json& source, const std::vector<PackedScheme>& modules) {
  Manifest manifest;
  manifest.target = "vllm-cpu";
  manifest.source_quantization_config = {{"quant_method", "x"}, {"ignore", {"lm_head"}}};
  manifest.kept = {{"m.kept", "because"}};
  return OutputConfig(source, manifest, modules).at("quantization_config");
}

TEST_CASE("the config names the layout of most modules, and the others as exceptions") {
  const Json config = QuantizationOf(Json::object(), {{"m.a", "x/one", &kGroups32},
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
  const Json config =
      QuantizationOf(Json::object(), {{"m.a", "x/one", &kGroups32}, {"m.b", "x/two", &kGroups32}});
  CHECK(config.at("layout") == "x/one");
  CHECK(config.at("exceptions").size() == 1);
}

TEST_CASE("modules with a scale per channel are alike whatever their size") {
  const Json config = QuantizationOf(
      Json::object(), {{"m.a", "x/one", &kChannels64}, {"m.b", "x/one", &kChannels128}});
  CHECK(config.at("group_size") == -1);
  CHECK(config.at("exceptions").empty());
}

TEST_CASE("a config without packed modules says nothing of layouts") {
  const Json config = QuantizationOf(Json::object(), {});
  CHECK_FALSE(config.contains("layout"));
  CHECK(config.at("exceptions").empty());
}

}  // namespace
}  // namespace prepack
