// Which entry of extra_config counts, and what is said of those that do not.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/auto_round_example.h"
#include "formats/defects.h"
#include "prepack/formats/auto_round/config.h"

namespace prepack::testing {
namespace {

constexpr const char* kGate = "model.layers.0.mlp.gate_proj";
constexpr const char* kUp = "model.layers.0.mlp.up_proj";
constexpr const char* kDown = "model.layers.1.mlp.down_proj";

TestCheckpoint ThreeModules() {
  TestCheckpoint stored = ArGptq();
  for (const char* module : {kGate, kDown}) {
    for (const TestTensor& tensor : ArGptqTensors(module, ArNumbers(), 0x77)) {
      stored.tensors.push_back(tensor);
    }
  }
  return stored;
}

// The key of the entry that describes each of the three modules, "-" for none: "GATE UP DOWN".
std::string Resolve(const Json& extra, std::vector<Finding>* findings = nullptr) {
  TestCheckpoint stored = ThreeModules();
  ArConfig(stored)["extra_config"] = extra;
  const TempFolder folder;
  stored.Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  FindingTally tally;
  const auto configs = FindQuantizationConfigs(*checkpoint);
  REQUIRE(configs.ok());
  const Result<auto_round::Config> config = auto_round::ParseConfig(*configs, tally);
  RequireOk(config.status());
  const GroupedTensors grouped = GroupByModule(*checkpoint);
  const std::vector<ModuleTensors>& modules = grouped.modules;
  const Result<auto_round::Matcher> matcher = auto_round::Matcher::Make(*config, modules, tally);
  RequireOk(matcher.status());
  std::string keys;
  for (const char* module : {kGate, kUp, kDown}) {
    const auto_round::Entry* entry = matcher->EntryOf(module);
    keys += (keys.empty() ? "" : " ") + (entry == nullptr ? "-" : entry->key);
  }
  if (findings != nullptr) *findings = tally.Take();
  return keys;
}

TEST_CASE("exact names win, then the first expression in the order of the file") {
  const Json four = {{"bits", 4}};
  CHECK(Resolve(Json::object()) == "- - -");
  CHECK(Resolve({{"gate", four}}) == "gate - -");  // found anywhere in the name
  CHECK(Resolve({{".*mlp.*", four}, {kUp, four}}) == std::string(".*mlp.* ") + kUp + " .*mlp.*");
  CHECK(Resolve({{"up_proj$", four}, {"layers\\.0", four}}) == "layers\\.0 up_proj$ -");
  CHECK(Resolve({{"layers\\.0", four}, {"up_proj$", four}}) == "layers\\.0 layers\\.0 -");
  // Not in the order of the alphabet.
  CHECK(Resolve({{"z|up", four}, {"a|up", four}}) == "a|up z|up a|up");
}

// What is said of the module up_proj where the entries of the copy stand in another order.
std::vector<Finding> FindingsInOrders(const Json& ours, const Json& theirs) {
  TestCheckpoint stored = ThreeModules();
  ArConfig(stored)["extra_config"] = ours;
  Json copy = ArConfig(stored);
  copy["extra_config"] = theirs;
  const TempFolder folder;
  stored.Write(folder.path());
  std::ofstream(folder.path() / "quantization_config.json") << copy.dump();
  return MustOpen(folder.path()).model.findings;
}

TEST_CASE("the order of entries is reported only where it makes a difference") {
  const Json four = {{"bits", 4}};
  const Json eight = {{"bits", 8}};
  const std::vector<Finding> differ = FindingsInOrders({{"gate|up", four}, {"mlp.up", eight}},
                                                       {{"mlp.up", eight}, {"gate|up", four}});
  CHECK(HasFinding(differ, "config-order-differs",
                   "\"gate|up\" comes first here and counts, as in transformers and vLLM, but "
                   "\"mlp.up\" comes first in quantization_config.json.extra_config"));
  const auto reported = [](const std::vector<Finding>& findings) {
    return HasFinding(findings, "config-order-differs", "");
  };
  // No module matches both; both mean the same; an exact name wins over either.
  CHECK_FALSE(
      reported(FindingsInOrders({{"gate", four}, {"up", eight}}, {{"up", eight}, {"gate", four}})));
  CHECK_FALSE(reported(FindingsInOrders({{"gate|up", four}, {"mlp.up", Json::object()}},
                                        {{"mlp.up", Json::object()}, {"gate|up", four}})));
  CHECK_FALSE(reported(FindingsInOrders({{"gate|up", four}, {"mlp.up", eight}, {kUp, four}},
                                        {{kUp, four}, {"mlp.up", eight}, {"gate|up", four}})));
}

TEST_CASE("keys that match nothing or do not compile are reported and skipped") {
  std::vector<Finding> findings;
  CHECK(Resolve({{"k_proj", {{"bits", 8}}}, {"(", {{"bits", 8}}}}, &findings) == "- - -");
  REQUIRE(findings.size() == 2);
  CHECK(HasFinding(findings, "autoround-pattern-skipped", "prepack skips it, as AutoRound does"));
  CHECK(HasFinding(findings, "config-pattern-unmatched", "matches no module"));
  CHECK(findings[1].where == "config.json: quantization_config.extra_config[\"k_proj\"]");
  Resolve({{"lm_head", {{"bits", 16}}}}, &findings);
  CHECK(findings.empty());
}

TEST_CASE("an exact entry without bits is reported") {
  std::vector<Finding> findings;
  CHECK(Resolve({{kUp, {{"sym", true}}}}, &findings) == std::string("- ") + kUp + " -");
  CHECK(HasFinding(findings, "autoround-entry-without-bits", "loads the layer as unquantized"));
  Resolve({{".*up_proj", {{"sym", true}}}}, &findings);
  CHECK(findings.empty());
}

TEST_CASE("names with another prefix are taken for the same layers") {
  std::vector<Finding> findings;
  const std::string key = "model.language_model.layers.0.mlp.up_proj";
  CHECK(Resolve({{key, {{"bits", 4}}}}, &findings) == "- " + key + " -");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "autoround-name-prefix");
  // A key that is a part of a name is searched for, and beside the whole name it counts for
  // nothing.
  const std::string part = "layers.1.mlp.down_proj";
  CHECK(Resolve({{part, {{"bits", 4}}}}, &findings) == "- - " + part);
  CHECK(findings.empty());
  CHECK(Resolve({{part, {{"bits", 8}}}, {kDown, {{"bits", 4}}}}, &findings) ==
        std::string("- - ") + kDown);
  CHECK(findings.empty());
  CHECK(auto_round::WithoutModelPrefix("language_model.model.layers.1.x") == "layers.1.x");
  CHECK(auto_round::WithoutModelPrefix("lm_head") == "lm_head");
}

TEST_CASE("where config and tensors disagree about a layer, the tensors win") {
  TestCheckpoint stored = ThreeModules();
  CHECK(FindingsOf(stored).empty());
  ArConfig(stored)["extra_config"][kGate] = {{"bits", 16}, {"data_type", "float"}};
  CHECK(HasFinding(FindingsOf(stored), "module-ignored-but-quantized",
                   "says 16 bits, but the module is quantized"));

  stored = ThreeModules();
  ArConfig(stored)["block_name_to_quantize"] = "model.layers.0, model.layers.2";
  std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "module-ignored-but-quantized");
  CHECK(findings[0].where == kDown);
  ArConfig(stored)["block_name_to_quantize"] = {{"model.layers.0"}, {"model.layers.1"}};
  CHECK(FindingsOf(stored).empty());

  for (const char* suffix : {".qweight", ".qzeros", ".scales"})
    stored.Remove(kDown + std::string(suffix));
  stored.tensors.push_back(
      {kDown + std::string(".weight"), "F16", {32, 32}, std::vector<std::byte>(2048)});
  CHECK(HasFinding(FindingsOf(stored), "module-targeted-but-plain", "in floating point"));
  ArConfig(stored)["extra_config"][kDown] = {{"bits", 16}};
  CHECK(FindingsOf(stored).empty());
}

TEST_CASE("a quantized head that the config does not name is reported") {
  TestCheckpoint stored = ThreeModules();
  for (const TestTensor& tensor : ArGptqTensors("lm_head", ArNumbers(), 0x77)) {
    stored.tensors.push_back(tensor);
  }
  CHECK(HasFinding(FindingsOf(stored), "head-undeclared", "extra_config does not name it"));
  ArConfig(stored)["extra_config"]["lm_head"] = {{"bits", 4}};
  CHECK(FindingsOf(stored).empty());
}

TEST_CASE("a head that the config quantizes and that is plain is reported") {
  TestCheckpoint stored = ThreeModules();
  stored.tensors.push_back({"lm_head.weight", "BF16", {2, 2}, Hex("0000 0000 0000 0000")});
  const auto reported = [&] { return HasFinding(FindingsOf(stored), "head-undeclared", ""); };
  CHECK_FALSE(reported());
  ArConfig(stored)["extra_config"] = {{"lm_head", {{"bits", 4}, {"group_size", 32}}}};
  CHECK(HasFinding(FindingsOf(stored), "head-undeclared",
                   "says 4 bits, but the output head is stored as BF16"));
  ArConfig(stored)["extra_config"] = {{"lm_head", {{"bits", 16}}}};
  CHECK_FALSE(reported());
}

TEST_CASE("A quantized copy of the embedding is leaves it as stored") {
  TestCheckpoint stored = ThreeModules();
  for (const TestTensor& tensor : ArGptqTensors("mtp.embed_tokens", ArNumbers(), 0x77)) {
    stored.tensors.push_back(tensor);
  }
  // By itself it is the embedding of the model.
  const TempFolder alone;
  stored.Write(alone.path());
  CHECK(OpenModel(alone.path()).status().id() == "embedding-quantized");

  stored.tensors.push_back(
      {"model.embed_tokens.weight", "BF16", {2, 2}, Hex("0000 0000 0000 0000")});
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.modules.size() == 3);
  CHECK(opened.model.kept == std::vector<std::string>{"mtp.embed_tokens"});
  CHECK(HasFinding(opened.model.findings, "embedding-copy-quantized", "leaves it as stored"));
}

TEST_CASE("a legacy backend that contradicts packing_format is reported") {
  TestCheckpoint stored = ThreeModules();
  ArConfig(stored)["backend"] = "auto_round:awq";
  CHECK(HasFinding(FindingsOf(stored), "autoround-backend-differs",
                   "backend \"auto_round:awq\" means other tensors than packing_format "
                   "\"auto_round:auto_gptq\""));
  ArConfig(stored)["backend"] = "auto_round:gptq";
  CHECK(FindingsOf(stored).empty());
}

}  // namespace
}  // namespace prepack::testing
