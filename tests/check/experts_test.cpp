#include "prepack/check/model_checks.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "check/check_run.h"
#include "check/wide_example.h"
#include "formats/fp4_example.h"

namespace prepack::testing {
namespace {

const std::string kParent = "model.layers.0.mlp.experts";

std::string Expert(int expert, const std::string& module = "up_proj") {
  return kParent + "." + std::to_string(expert) + "." + module;
}

TestCheckpoint ThreeExperts() {
  TestCheckpoint checkpoint = WideExample();
  for (const int expert : {0, 1, 2}) AddWideModule(checkpoint, Expert(expert), 7);
  return checkpoint;
}

void AddStack(TestCheckpoint& checkpoint, const std::string& name, uint64_t experts) {
  checkpoint.tensors.push_back(
      {kParent + "." + name, "BF16", {experts, 2, 2}, std::vector<std::byte>(experts * 8)});
}

TEST_CASE("missing experts are an error") {
  TestCheckpoint checkpoint = ThreeExperts();
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    INFO(key);
    checkpoint.config[key] = 3;
    RequireSound(RunHeaderCheck(checkpoint));
    checkpoint.config[key] = 4;
    RequireOnly(RunHeaderCheck(checkpoint), "expert-missing", "1 of 4 experts are missing: 3",
                CheckVerdict::kMalformed);
    checkpoint.config[key] = 2;
    RequireOnly(RunHeaderCheck(checkpoint), "expert-count", "3 experts, but 2",
                CheckVerdict::kWarnings);
    checkpoint.config.erase(key);
  }
}

TEST_CASE("an expert that lacks a module is an error") {
  TestCheckpoint checkpoint = ThreeExperts();
  AddWideModule(checkpoint, Expert(0, "extra_proj"), 8);
  AddWideModule(checkpoint, Expert(2, "extra_proj"), 9);
  RequireOnly(RunHeaderCheck(checkpoint), "expert-missing",
              kParent + ".1: extra_proj is missing, which other experts have",
              CheckVerdict::kMalformed);
}

TEST_CASE("experts of DeepSeek V4 that are missing are an error") {
  TestCheckpoint checkpoint = DeepSeekV4();
  const std::string second = "layers.0.ffn.experts.1.w1";
  TestTensor weight = checkpoint.At(kDeepSeekExpert + ".weight");
  weight.name = second + ".weight";
  TestTensor scale = checkpoint.At(kDeepSeekExpert + ".scale");
  scale.name = second + ".scale";
  checkpoint.tensors.push_back(weight);
  checkpoint.tensors.push_back(scale);
  checkpoint.config["n_routed_experts"] = 2;
  RequireSound(RunHeaderCheck(checkpoint));
  TestCheckpoint without_scale = checkpoint;
  without_scale.Remove(second + ".scale");
  RequireOnly(RunHeaderCheck(without_scale), "tensor-missing",
              "a scale of the FP4 weight is missing", CheckVerdict::kMalformed);
  checkpoint.config["n_routed_experts"] = 3;
  RequireOnly(RunHeaderCheck(checkpoint), "expert-missing", "1 of 3 experts are missing: 2",
              CheckVerdict::kMalformed);
}

TEST_CASE("several experts that lack the same are one finding") {
  TestCheckpoint checkpoint = ThreeExperts();
  AddWideModule(checkpoint, Expert(2, "extra_proj"), 8);
  const CheckReport report = RunHeaderCheck(checkpoint);
  INFO(Lines(report));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].where == kParent + ".0");
  CHECK(report.findings[0].more == 1);
}

TEST_CASE("experts have one scheme") {
  TestCheckpoint checkpoint = ThreeExperts();
  Json& groups = checkpoint.config["quantization_config"]["config_groups"];
  groups["coarse"] = groups["group_0"];
  groups["coarse"]["targets"] = {Expert(2)};
  groups["coarse"]["weights"]["group_size"] = 64;
  TestTensor& scale = checkpoint.At(Expert(2) + ".weight_scale");
  scale.shape = {kWideN, 2};
  scale.bytes.resize(kWideN * 2 * 2);
  RequireOnly(RunHeaderCheck(checkpoint), "expert-schemes-differ",
              Expert(2) +
                  ": w4a16 group 64 symmetric, but an earlier expert has w4a16 group "
                  "32 symmetric",
              CheckVerdict::kWarnings);
}

TEST_CASE("an expert that is not quantized is named") {
  TestCheckpoint checkpoint = ThreeExperts();
  for (const char* suffix : {".weight_packed", ".weight_scale", ".weight_shape"}) {
    checkpoint.Remove(Expert(1) + suffix);
  }
  checkpoint.tensors.push_back({Expert(1) + ".weight",
                                "BF16",
                                {kWideN, kWideK},
                                std::vector<std::byte>(kWideN * kWideK * 2)});
  checkpoint.config["quantization_config"]["ignore"] = {Expert(1)};
  RequireOnly(RunHeaderCheck(checkpoint), "expert-schemes-differ",
              Expert(1) + ": not quantized, but an earlier expert has w4a16",
              CheckVerdict::kWarnings);
}

TEST_CASE("the first dimension of stacked experts is their number") {
  TestCheckpoint checkpoint = WideExample();
  AddStack(checkpoint, "gate_up_proj", 4);
  AddStack(checkpoint, "down_proj", 4);
  RequireSound(RunHeaderCheck(checkpoint));
  checkpoint.config["num_experts"] = 4;
  RequireSound(RunHeaderCheck(checkpoint));
  checkpoint.config["num_experts"] = 8;
  CheckReport report = RunHeaderCheck(checkpoint);
  INFO(Lines(report));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].id == "expert-missing");
  CHECK(report.findings[0].where == kParent + ".down_proj");
  CHECK(report.findings[0].message == "the tensor holds 4 experts, but 8 by config.json");
  CHECK(report.findings[0].more == 1);
  checkpoint.config["num_experts"] = 3;
  report = RunHeaderCheck(checkpoint);
  CHECK(report.findings.at(0).id == "expert-count");

  checkpoint.config.erase("num_experts");
  AddStack(checkpoint, "extra_proj", 3);
  RequireOnly(RunHeaderCheck(checkpoint), "expert-missing",
              "extra_proj: the tensor holds 3 experts, but 4 by the other tensors of the layer",
              CheckVerdict::kMalformed);
}

}  // namespace
}  // namespace prepack::testing
