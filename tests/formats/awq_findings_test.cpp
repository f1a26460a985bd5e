// What an AWQ checkpoint says that is not so, where the tensors settle it.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/awq_example.h"
#include "formats/defects.h"

namespace prepack {
namespace {

using testing::AwqCheckpoint;
using testing::AwqNumbers;
using testing::FindingsOf;
using testing::HasFinding;
using testing::TestCheckpoint;
using testing::TestTensor;

AwqNumbers GroupedNumbers(uint64_t group_size = 64) {
  SplitMix64 random(31);
  return testing::RandomAwqNumbers(16, 128, group_size, random);
}

TestCheckpoint Mlp() {
  TestCheckpoint stored = AwqCheckpoint(
      testing::AwqGemmTensors("model.layers.0.mlp.gate_proj", GroupedNumbers()), "gemm", 64);
  for (const TestTensor& tensor :
       testing::AwqGemmTensors("model.layers.0.mlp.up_proj", GroupedNumbers())) {
    stored.tensors.push_back(tensor);
  }
  return stored;
}

Json& QuantizationOf(TestCheckpoint& stored) {
  return stored.config["quantization_config"];
}

void AddPlainAwq(TestCheckpoint& stored, const std::string& module) {
  stored.tensors.push_back(
      {module + ".weight", "F16", {16, 128}, std::vector<std::byte>(size_t{16} * 128 * 2)});
}

TEST_CASE("A sound AWQ checkpoint has no findings") {
  TestCheckpoint stored = Mlp();
  AddPlainAwq(stored, "lm_head");
  CHECK(FindingsOf(stored).empty());
  QuantizationOf(stored)["modules_to_not_convert"] = {"lm_head", "visual"};
  CHECK(FindingsOf(stored).empty());
}

TEST_CASE("A version that names another layout is reported, and the tensors are believed") {
  TestCheckpoint stored = Mlp();
  QuantizationOf(stored)["version"] = "GEMV";
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "awq-version-wrong");
  CHECK(findings[0].where == "model.layers.0.mlp.gate_proj");
  CHECK(findings[0].more == 1);
  CHECK(findings[0].message ==
        "the tensors have layout gemm, but config.json: quantization_config says version \"gemv\"");

  QuantizationOf(stored).erase("version");
  CHECK(FindingsOf(stored).empty());  // gemm is the default
  QuantizationOf(stored)["checkpoint_format"] = "gemv_fast";
  CHECK(HasFinding(FindingsOf(stored), "awq-version-wrong", "version \"gemv_fast\""));

  TestCheckpoint gemv = AwqCheckpoint(
      testing::AwqGemvTensors("model.layers.0.mlp.up_proj", GroupedNumbers()), "gemm", 64);
  CHECK(HasFinding(FindingsOf(gemv), "awq-version-wrong", "the tensors have layout gemv,"));
}

TEST_CASE("Exclusions that would hit quantized modules in vLLM are reported") {
  TestCheckpoint stored = Mlp();
  QuantizationOf(stored)["modules_to_not_convert"] = {"gate"};
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "module-ignored-but-quantized");
  CHECK(findings[0].where == "model.layers.0.mlp.gate_proj");
  CHECK(findings[0].message.starts_with(
      "in vLLM, which compares parts of names, \"gate\" of modules_to_not_convert also matches"));
}

TEST_CASE("A plain module that the exclusions do not name is reported") {
  TestCheckpoint stored = Mlp();
  AddPlainAwq(stored, "model.layers.0.mlp.down_proj");
  CHECK(FindingsOf(stored).empty());  // without a list, readers look at the tensors
  QuantizationOf(stored)["modules_to_not_convert"] = {"lm_head"};
  CHECK(HasFinding(FindingsOf(stored), "module-targeted-but-plain",
                   "modules_to_not_convert does not name it"));
  QuantizationOf(stored)["modules_to_not_convert"] = {"down_proj"};
  CHECK(FindingsOf(stored).empty());
}

TEST_CASE("Fused layers that are quantized differently are listed") {
  TestCheckpoint stored = Mlp();
  for (const char* suffix : {"qweight", "qzeros", "scales"}) {
    stored.Remove(std::string("model.layers.0.mlp.up_proj.") + suffix);
  }
  AddPlainAwq(stored, "model.layers.0.mlp.up_proj");
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "module-siblings-differ");
  CHECK(findings[0].message ==
        "layers that runtimes fuse differ: gate_proj w4a16 group 64 asymmetric, up_proj not "
        "quantized");
}

TEST_CASE("lm_head in the config and in the tensors are compared") {
  TestCheckpoint stored = Mlp();
  QuantizationOf(stored)["lm_head"] = true;
  CHECK(HasFinding(FindingsOf(stored), "head-undeclared", "but lm_head is not quantized"));
  for (const TestTensor& tensor : testing::AwqGemmTensors("lm_head", GroupedNumbers())) {
    stored.tensors.push_back(tensor);
  }
  CHECK(FindingsOf(stored).empty());
  QuantizationOf(stored).erase("lm_head");
  CHECK(HasFinding(FindingsOf(stored), "head-undeclared", "does not say \"lm_head\": true"));
}

TEST_CASE("The head of a multimodal model is a head") {
  TestCheckpoint stored = Mlp();
  for (const TestTensor& tensor :
       testing::AwqGemmTensors("language_model.lm_head", GroupedNumbers())) {
    stored.tensors.push_back(tensor);
  }
  CHECK(HasFinding(FindingsOf(stored), "head-undeclared", "does not say \"lm_head\": true"));
  QuantizationOf(stored)["lm_head"] = true;
  CHECK(FindingsOf(stored).empty());
}

TEST_CASE("Tensors that are not supported are reported") {
  TestCheckpoint stored = Mlp();
  stored.tensors.push_back(
      {"model.layers.0.mlp.up_proj.smooth", "F16", {2}, std::vector<std::byte>(4)});
  const std::vector<Finding> findings = FindingsOf(stored);
  CHECK(HasFinding(findings, "tensor-unknown", "unknown tensor of a quantized module"));
}

}  // namespace
}  // namespace prepack
