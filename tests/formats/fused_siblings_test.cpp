#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/gptq_example.h"

namespace prepack::testing {
namespace {

const std::string kAttention = "model.layers.0.self_attn.";

void AddQuantized(TestCheckpoint& stored, const std::string& name) {
  GptqExample x;
  x.Randomize(3, 1);
  AddGptqModule(stored, name, x);
}

void AddPlainLinear(TestCheckpoint& stored, const std::string& name) {
  stored.tensors.push_back(
      {name + ".weight", "F16", {8, 32}, std::vector<std::byte>(size_t{8} * 32 * 2)});
}

// Queries and keys that are quantized alike.
TestCheckpoint QueriesAndKeys() {
  TestCheckpoint stored;
  stored.config = SmallGptq().config;
  AddQuantized(stored, kAttention + "q_proj");
  AddQuantized(stored, kAttention + "k_proj");
  return stored;
}

TEST_CASE("siblings that are quantized alike, or are not there, are no finding") {
  TestCheckpoint stored = QueriesAndKeys();
  CHECK(FindingsOf(stored).empty());
  AddQuantized(stored, kAttention + "v_proj");
  // Not fused with them, nor with a module of another layer.
  AddPlainLinear(stored, kAttention + "o_proj.inner");
  AddPlainLinear(stored, "model.layers.1.up");
  CHECK(FindingsOf(stored).empty());
}

TEST_CASE("a sibling that is not quantized is a finding, whichever format it is") {
  TestCheckpoint stored = QueriesAndKeys();
  AddPlainLinear(stored, kAttention + "v_proj");
  GptqConfigOf(stored)["dynamic"] = {{"-:.*v_proj", Json::object()}};
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "module-siblings-differ");
  CHECK(findings[0].where == kAttention + "q_proj");
  CHECK(findings[0].message ==
        "layers that runtimes fuse differ: q_proj w4a16 group 16 symmetric, k_proj w4a16 group 16 "
        "symmetric, v_proj not quantized");
}

TEST_CASE("siblings of two schemes are one finding for all layers") {
  TestCheckpoint stored;
  stored.config = SmallGptq().config;
  GptqConfigOf(stored)["dynamic"] = {{".*up_proj", {{"bits", 8}}}};
  GptqExample wide;
  wide.bits = 8;
  wide.Randomize(4, 1);
  for (const std::string layer : {"model.layers.0.mlp.", "model.layers.1.mlp."}) {
    AddQuantized(stored, layer + "gate_proj");
    AddGptqModule(stored, layer + "up_proj", wide);
  }
  const std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].message ==
        "layers that runtimes fuse differ: gate_proj w4a16 group 16 symmetric, up_proj w8a16 group "
        "16 symmetric");
  CHECK(findings[0].more == 1);
}

TEST_CASE("a sibling that cannot be read is an error, but no finding as well") {
  TestCheckpoint stored = QueriesAndKeys();
  stored.Remove(kAttention + "k_proj.scales");
  const TempFolder folder;
  stored.Write(folder.path());
  const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
  const QuantizedModel model = Value(ExamineQuantizedModel(checkpoint));
  REQUIRE(model.errors.size() == 1);
  CHECK(model.errors[0].id() == "tensor-missing");
  CHECK(model.findings.empty());
}

}  // namespace
}  // namespace prepack::testing
