#include <string>
#include <vector>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/defects.h"
#include "formats/fp8_example.h"
#include "formats/read_helpers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

struct Said {
  std::vector<Status> errors;
  std::vector<Finding> findings;
};

// What is said of a compressed-tensors checkpoint with another module of these tensors.
Said SaidWith(const std::vector<TestTensor>& tensors) {
  TestCheckpoint stored = SymmetricExample();
  for (const TestTensor& tensor : tensors) stored.tensors.push_back(tensor);
  const TempFolder folder;
  stored.Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  Result<QuantizedModel> model = ExamineQuantizedModel(*checkpoint);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  CHECK(model->modules.size() == 1);
  return {std::move(model->errors), std::move(model->findings)};
}

std::vector<Status> ErrorsWith(const std::vector<TestTensor>& tensors) {
  return SaidWith(tensors).errors;
}

TEST_CASE("a module of another format is an error, never a layer that passes through") {
  const std::string name = "model.layers.0.mlp.down_proj";
  const std::vector<Status> gptq = ErrorsWith({{name + ".qweight", "I32", {1, 1}, Hex("00000000")},
                                               {name + ".scales", "F16", {1, 1}, Hex("003c")}});
  REQUIRE(gptq.size() == 1);
  CHECK(gptq[0].kind() == ErrorKind::kMalformed);
  CHECK(gptq[0].id() == "module-foreign");
  CHECK(gptq[0].where() == "model.safetensors: tensor " + name + ".qweight");
  CHECK(gptq[0].what() == "the module is quantized, but not as compressed-tensors stores it");

  const std::vector<Status> codes =
      ErrorsWith({{name + ".weight", "I32", {1, 1}, Hex("00000000")}});
  REQUIRE(codes.size() == 1);
  CHECK(codes[0].id() == "module-foreign");
}

TEST_CASE("codes of a second format in a module that is read are an error") {
  const std::vector<Status> errors =
      ErrorsWith({{kExampleModule + ".qweight", "I32", {1, 1}, Hex("00000000")}});
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].id() == "module-foreign");
  CHECK(errors[0].where() == "model.safetensors: tensor " + kExampleModule + ".qweight");
}

TEST_CASE("what the reader has complained about is not said twice") {
  const std::vector<Status> errors =
      ErrorsWith({{"model.layers.0.mlp.down_proj.weight_scale", "BF16", {1, 1}, Hex("803f")}});
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].id() == "tensor-orphan");
}

TEST_CASE("quantized weights under names that are not supported are refused by name, as sound") {
  struct Case {
    std::string what;
    std::vector<TestTensor> tensors;
  };
  const std::string experts = "model.layers.0.mlp.experts";
  const std::vector<Case> cases = {
      {"quantized experts stacked in one tensor are not supported yet",
       {{experts + ".gate_up_proj", "F8_E4M3", {2, 1, 2}, Hex("38383838")},
        {experts + ".gate_up_proj_scale_inv", "F32", {2, 1, 1}, Hex("0000803f0000803f")}}},
      {"quantized experts stacked in one tensor are not supported yet",
       {{experts + ".down_proj", "I8", {2, 1, 2}, Hex("01020304")},
        {experts + ".down_proj_scale", "BF16", {2, 1, 1}, Hex("803f803f")}}},
      {"MXFP4 weights in blocks are supported under quant_method mxfp4 only",
       {{experts + ".down_proj_blocks", "U8", {1, 1, 1, 4}, Hex("01020304")},
        {experts + ".down_proj_scales", "U8", {1, 1, 1}, Hex("7f")}}},
      {"prepack does not yet support the way in which this quantized weight is stored",
       {{experts + ".0.w1", "F8_E4M3", {1, 2}, Hex("3838")},
        {experts + ".0.w1_scale", "F32", {1}, Hex("0000803f")}}},
      {"MXFP4 weights, two in a byte, are not supported yet",
       {{experts + ".0.w1.weight", "U8", {1, 2}, Hex("3838")},
        {experts + ".0.w1.scale", "F8_E8M0", {1, 1}, Hex("7f")}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.tensors[0].name);
    const Said said = SaidWith(c.tensors);
    REQUIRE(said.errors.size() == 1);
    CHECK(said.errors[0].kind() == ErrorKind::kUnsupported);
    CHECK(said.errors[0].id() == "storage-unsupported");
    CHECK(said.errors[0].where() == "model.safetensors: tensor " + c.tensors[0].name);
    CHECK(said.errors[0].what() == c.what);
    CHECK(said.findings.empty());
  }
}

TEST_CASE("where only such weights are quantized, they are the reason") {
  TestCheckpoint stored = SymmetricExample();
  stored.config["quantization_config"] = {{"quant_method", "fp8"}};
  const std::string experts = "model.layers.0.mlp.experts";
  stored.tensors = {{experts + ".up_proj", "F8_E4M3", {2, 1, 2}, Hex("38383838")},
                    {experts + ".up_proj_scale_inv", "F32", {2, 1, 1}, Hex("0000803f0000803f")}};
  const Status status = ReadEverything(stored);
  CHECK(status.kind() == ErrorKind::kUnsupported);
  CHECK(status.id() == "storage-unsupported");
}

TEST_CASE("a float weight that transformers left as it is may have a scale, which is not used") {
  TestCheckpoint stored = Fp8Blocks();
  const std::string name = "model.layers.0.linear_attn.in_proj_a";
  stored.tensors.push_back({name + ".weight", "BF16", {1, 2}, Hex("803f803f")});
  stored.tensors.push_back({name + ".weight_scale_inv", "F32", {1, 1}, Hex("00000000")});
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.modules.size() == 1);
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "scale-leftover");
  CHECK(opened.model.findings[0].severity == Severity::kInfo);
  CHECK(opened.model.findings[0].where == name);
  CHECK(opened.model.findings[0].message.find("multiplies the weight by it if it dequantizes") !=
        std::string::npos);
  // Not so in other formats, and not where a shard with the weight is missing.
  CHECK(ErrorsWith({{name + ".weight", "BF16", {1, 2}, Hex("803f803f")},
                    {name + ".weight_scale_inv", "F32", {1, 1}, Hex("00000000")}})
            .size() == 1);
  stored.Remove(name + ".weight");
  CHECK(ReadEverything(stored).id() == "module-foreign");
}

TEST_CASE("matrices of codes without a scale pass through, and are named") {
  const Said said = SaidWith({{"model.table", "F8_E4M3", {2, 2}, Hex("38383838")},
                              {"model.other", "F8_E4M3", {2, 2}, Hex("38383838")},
                              {"model.layers.0.attn.bias", "U8", {1, 1, 2, 2}, Hex("01000101")},
                              {"model.flags", "U8", {4}, Hex("01000101")}});
  CHECK(said.errors.empty());
  REQUIRE(said.findings.size() == 1);
  CHECK(said.findings[0].id == "tensor-stays-quantized");
  CHECK(said.findings[0].severity == Severity::kWarning);
  CHECK(said.findings[0].where == "model.other");
  CHECK(said.findings[0].more == 1);
}

TEST_CASE("plain layers, norms and biases are no evidence") {
  CHECK(ErrorsWith({{"model.embed_tokens.weight", "BF16", {1, 1}, Hex("803f")},
                    {"model.layers.0.mlp.up_proj.bias", "BF16", {4}, Hex("803f803f803f803f")},
                    {"model.layers.0.self_attn.k_scale", "F32", {1}, Hex("0000803f")},
                    {"model.positions", "I64", {1}, Int64s({1})}})
            .empty());
}

}  // namespace
}  // namespace prepack::testing
