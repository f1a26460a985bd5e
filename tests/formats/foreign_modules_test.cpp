#include "formats/foreign_modules.h"

#include <string>
#include <vector>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/read_helpers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::Hex;
using testing::TestCheckpoint;

// What is said of a compressed-tensors checkpoint with another module of these tensors.
std::vector<Status> ErrorsWith(const std::vector<testing::TestTensor>& tensors) {
  TestCheckpoint stored = testing::SymmetricExample();
  for (const testing::TestTensor& tensor : tensors) stored.tensors.push_back(tensor);
  const testing::TempFolder folder;
  stored.Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  Result<QuantizedModel> model = ExamineQuantizedModel(*checkpoint);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  CHECK(model->modules.size() == 1);
  return model->errors;
}

TEST_CASE("A module of another format is an error, never a layer that passes through") {
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

TEST_CASE("Codes of a second format in a module that is read are an error") {
  const std::vector<Status> errors =
      ErrorsWith({{testing::kExampleModule + ".qweight", "I32", {1, 1}, Hex("00000000")}});
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].id() == "module-foreign");
  CHECK(errors[0].where() == "model.safetensors: tensor " + testing::kExampleModule + ".qweight");
}

TEST_CASE("What the reader has complained about is not said twice") {
  const std::vector<Status> errors =
      ErrorsWith({{"model.layers.0.mlp.down_proj.weight_scale", "BF16", {1, 1}, Hex("803f")}});
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].id() == "tensor-orphan");
}

TEST_CASE("Plain layers, norms and biases are no evidence") {
  CHECK(ErrorsWith({{"model.embed_tokens.weight", "BF16", {1, 1}, Hex("803f")},
                    {"model.layers.0.mlp.up_proj.bias", "BF16", {4}, Hex("803f803f803f803f")},
                    {"model.layers.0.self_attn.k_scale", "F32", {1}, Hex("0000803f")},
                    {"model.positions", "I64", {1}, testing::Int64s({1})}})
            .empty());
}

}  // namespace
}  // namespace prepack
