#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/ct_example.h"
#include "prepack/formats/format.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kHidden = 16;
constexpr uint64_t kTokens = 8;

void AddMatrix(TestCheckpoint& stored, const std::string& module, uint64_t n, uint64_t k) {
  stored.tensors.push_back(
      {module + ".weight", "BF16", {n, k}, std::vector<std::byte>(n * k * 2, std::byte{0x3C})});
}

void AddNormOf(TestCheckpoint& stored, const std::string& module) {
  stored.tensors.push_back({module + ".weight", "BF16", {kHidden}, std::vector<std::byte>(32)});
}

// A Llama of one layer that has all it needs.
TestCheckpoint WholeModel() {
  TestCheckpoint stored = SymmetricExample();
  stored.Remove("model.norm.weight");
  stored.config["architectures"] = {"LlamaForCausalLM"};
  stored.config["model_type"] = "llama";
  stored.config["vocab_size"] = kTokens;
  stored.config["tie_word_embeddings"] = false;
  AddMatrix(stored, "model.embed_tokens", kTokens, kHidden);
  AddMatrix(stored, "lm_head", kTokens, kHidden);
  AddMatrix(stored, "model.layers.0.mlp.down_proj", kHidden, 4);
  AddNormOf(stored, "model.layers.0.input_layernorm");
  AddNormOf(stored, "model.layers.0.post_attention_layernorm");
  AddNormOf(stored, "model.norm");
  return stored;
}

std::string MissingParts(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
  const QuantizedModel model = Value(ExamineQuantizedModel(checkpoint));
  std::string missing;
  for (const Status& error : model.errors) {
    CHECK(error.id() == "model-part-missing");
    CHECK(error.kind() == ErrorKind::kMalformed);
    missing += error.where() + ": " + error.what() + "\n";
  }
  return missing;
}

TEST_CASE("A model with all its parts misses none") {
  CHECK(MissingParts(WholeModel()).empty());
}

TEST_CASE("A part that no model can do without is missed") {
  const std::vector<std::pair<std::string, std::string>> parts = {
      {"model.embed_tokens", "the embedding: the model has no embedding\n"},
      {"lm_head",
       "the output head: the model has no output head, and config.json does not tie it to the "
       "embedding\n"},
      {"model.norm",
       "model.layers: the layers have norms, but there is no norm after the last one\n"},
      {"model.layers.0.input_layernorm", "model.layers: no layer has the norm input_layernorm\n"},
      {"model.layers.0.mlp.down_proj",
       "model.layers.0.mlp: the block has up_proj, but no down_proj\n"},
  };
  for (const auto& [part, message] : parts) {
    CAPTURE(part);
    TestCheckpoint stored = WholeModel();
    stored.Remove(part + ".weight");
    CHECK(MissingParts(stored) == message);
  }
}

TEST_CASE("A model without any norm is missed, unless it is built so") {
  TestCheckpoint stored = WholeModel();
  for (const char* norm : {"model.layers.0.input_layernorm",
                           "model.layers.0.post_attention_layernorm", "model.norm"}) {
    stored.Remove(std::string(norm) + ".weight");
  }
  CHECK(MissingParts(stored) == "model.layers: no layer has a norm\n");
  stored.config["model_type"] = "olmo";
  CHECK(MissingParts(stored).empty());
}

TEST_CASE("What an architecture does without is not missed") {
  TestCheckpoint tied = WholeModel();
  tied.Remove("lm_head.weight");
  tied.config["tie_word_embeddings"] = true;
  CHECK(MissingParts(tied).empty());
  tied.config.erase("tie_word_embeddings");  // what that means depends on the architecture
  CHECK(MissingParts(tied).empty());
  // The top level decides.
  tied.config["text_config"] = {{"tie_word_embeddings", false}};
  CHECK_FALSE(MissingParts(tied).empty());
  tied.config["tie_word_embeddings"] = true;
  CHECK(MissingParts(tied).empty());

  TestCheckpoint renamed = WholeModel();
  renamed.At("model.embed_tokens.weight").name = "model.tokens_in.weight";
  renamed.At("lm_head.weight").name = "model.tokens_out.weight";
  CHECK(MissingParts(renamed).empty());

  TestCheckpoint behind = WholeModel();
  behind.Remove("model.norm.weight");
  behind.config["do_layer_norm_before"] = false;
  CHECK(MissingParts(behind).empty());

  TestCheckpoint parallel = WholeModel();
  parallel.Remove("model.layers.0.post_attention_layernorm.weight");
  parallel.config["model_type"] = "cohere";
  CHECK(MissingParts(parallel).empty());

  TestCheckpoint encoder = SymmetricExample();
  encoder.config["architectures"] = {"LlamaModel"};
  CHECK(MissingParts(encoder).empty());
}

TEST_CASE("A folder without config.json is no model") {
  const TempFolder folder;
  TestCheckpoint stored = WholeModel();
  stored.Write(folder.path());
  std::ofstream(folder / "quantization_config.json") << stored.config["quantization_config"];
  std::filesystem::remove(folder / "config.json");
  const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
  const QuantizedModel model = Value(ExamineQuantizedModel(checkpoint));
  REQUIRE(model.errors.size() == 1);
  CheckError(model.errors[0], ErrorKind::kMalformed, "config.json: the folder has no config.json");
  CheckError(ReadQuantizedModel(checkpoint).status(), ErrorKind::kMalformed, "no config.json");
}

}  // namespace
}  // namespace prepack::testing
