#include "prepack/formats/config_keys.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

std::vector<Finding> FindingsOf(const std::string& method, const Json& fields) {
  FindingTally findings;
  RequireOk(
      CheckConfigKeys({.where = "config.json: q", .method = method, .fields = &fields}, findings));
  return findings.Take();
}

Status StatusOf(const std::string& method, const Json& fields) {
  FindingTally findings;
  return CheckConfigKeys({.where = "config.json: q", .method = method, .fields = &fields},
                         findings);
}

TEST_CASE("every format has keys, and says of any other that it was not read") {
  for (const Format& format : AllFormats()) {
    CAPTURE(format.id);
    const std::string id(format.id);
    CHECK(FindingsOf(id, {{"quant_method", id}, {"quantization_config", {{"a", 1}}}}).empty());
    const std::vector<Finding> findings = FindingsOf(id, {{"weights_upside_down", true}});
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].id == "config-key-unread");
    CHECK(findings[0].severity == Severity::kWarning);
    CHECK(findings[0].where == "config.json: q.weights_upside_down");
    CHECK(findings[0].message ==
          "no known writer of " + id + " checkpoints writes this key, and it was not read (true)");
  }
  CHECK(FindingsOf("of-nobody", {{"weights_upside_down", true}}).empty());
}

TEST_CASE("keys that say nothing, and keys in capitals, are nothing to report") {
  CHECK(FindingsOf(
            "gptq",
            {{"a", nullptr}, {"b", false}, {"c", ""}, {"d", Json::array()}, {"e", Json::object()}})
            .empty());
  CHECK(FindingsOf("gptq", {{"Bits", 4}, {"DESC_ACT", true}}).empty());
}

TEST_CASE("rules for single modules have keys of their own") {
  const Json rules = {{"dynamic", {{".*", {{"bits", 8}, {"upside_down", 1}}}, {"-:x", false}}}};
  const std::vector<Finding> findings = FindingsOf("gptq", rules);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].where == "config.json: q.dynamic..*.upside_down");
  CHECK(FindingsOf("auto-round", {{"extra_config", {{"a.b", {{"bits", 16}, {"in_blocks", true}}}}}})
            .empty());
  CHECK(FindingsOf("auto-round", {{"in_blocks", true}}).size() == 1);
}

TEST_CASE("keys of FP8 that change what the weights are refuse the checkpoint") {
  struct Case {
    std::string key;
    std::string id;
  };
  for (const Case& c :
       {Case{"rotation", "rotation"}, Case{"rotation_config", "rotation"},
        Case{"spinquant_config", "rotation"}, Case{"adapter", "adapter-unsupported"},
        Case{"store_dtype", "config-key-unsupported"}}) {
    CAPTURE(c.key);
    CHECK(FindingsOf("fp8", {{c.key, nullptr}}).empty());
    const Status status = StatusOf("fp8", {{c.key, "something"}});
    CheckError(status, ErrorKind::kUnsupported, "config.json: q." + c.key + ": ");
    CHECK(status.id() == c.id);
    CHECK(StatusOf("fp8", {{"dynamic", {{".*", {{c.key, "something"}}}}}}).id() == c.id);
  }
}

TEST_CASE("no real checkpoint has a key that is not known") {
  size_t checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    CAPTURE(entry.path().string());
    const Checkpoint checkpoint = Value(Checkpoint::Open(entry.path()));
    for (const QuantizationConfig& config : Value(FindQuantizationConfigs(checkpoint))) {
      FindingTally findings;
      RequireOk(CheckConfigKeys(config, findings));
      CHECK(findings.Take().empty());
      ++checkpoints;
    }
  }
  CHECK(checkpoints >= 40);
}

}  // namespace
}  // namespace prepack::testing
