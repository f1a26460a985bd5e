#include "catch.h"
#include "check/check_run.h"
#include "prepack/formats/model_parts.h"

namespace prepack::testing {
namespace {

TEST_CASE("headers alone give no statistics") {
  const CheckReport report = RunHeaderCheck(WideExample());
  RequireSound(report);
  CHECK_FALSE(report.modules[0].figures.has_value());
}

TEST_CASE("shapes are compared with config.json") {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.config["intermediate_size"] = 4096;
  RequireOnly(RunHeaderCheck(checkpoint), "config-shape", "N is 64, but 4096 by config.json",
              CheckVerdict::kWarnings);
  checkpoint.config["intermediate_size"] = 64;
  checkpoint.config["hidden_size"] = 100;
  RequireOnly(RunHeaderCheck(checkpoint), "module-padded", "K is 128, but 100 by config.json",
              CheckVerdict::kWarnings);
  // One value per layer is not told apart.
  checkpoint.config["hidden_size"] = 128;
  checkpoint.config["intermediate_size"] = {4096, 64};
  RequireSound(RunHeaderCheck(checkpoint));
}

TEST_CASE("a text_config counts before the outer one") {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.config["text_config"] = {{"hidden_size", 4096}};
  RequireOnly(RunHeaderCheck(checkpoint), "config-shape", "K is 128, but 4096",
              CheckVerdict::kWarnings);
}

TEST_CASE("a bias of the wrong length is an error") {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.tensors.push_back({WideModule(0) + ".bias", "BF16", {64}, Hex(std::string(256, '0'))});
  RequireSound(RunHeaderCheck(checkpoint));
  checkpoint.At(WideModule(0) + ".bias").shape = {32, 2};
  const CheckReport report = RunHeaderCheck(checkpoint);
  INFO(Lines(report));
  CHECK(report.verdict == CheckVerdict::kMalformed);
}

TEST_CASE("missing layers are an error") {
  TestCheckpoint checkpoint = WideExample(3);
  checkpoint.config["num_hidden_layers"] = 5;
  RequireOnly(RunHeaderCheck(checkpoint), "layer-missing", "2 of 5 layers have no tensor: 3, 4",
              CheckVerdict::kMalformed);
  checkpoint.config["num_hidden_layers"] = 18446744073709551615ULL;
  RequireOnly(RunHeaderCheck(checkpoint), "layer-missing", ": 3, 4, 5, 6, 7, …",
              CheckVerdict::kMalformed);
  checkpoint.config["num_hidden_layers"] = 2;
  RequireOnly(RunHeaderCheck(checkpoint), "layer-unknown", "there is a layer 2",
              CheckVerdict::kSound);
}

TEST_CASE("layers are counted whatever their only list is called") {
  TestCheckpoint checkpoint = WideExample(3);
  checkpoint.config["num_hidden_layers"] = 4;
  for (TestTensor& tensor : checkpoint.tensors) {
    tensor.name = "backbone" + tensor.name.substr(std::string("model").size());
  }
  RequireOnly(RunHeaderCheck(checkpoint), "layer-missing", "1 of 4 layers have no tensor: 3",
              CheckVerdict::kMalformed);
  // Of two lists with unusual names, neither is known to be the one.
  AddWideModule(checkpoint, "vision.layers.0.mlp.up_proj", 9);
  RequireSound(RunHeaderCheck(checkpoint));
}

TEST_CASE("siblings that are fused must have one scheme") {
  TestCheckpoint checkpoint = WideExample();
  AddWideModule(checkpoint, "model.layers.0.mlp.gate_proj", 3);
  RequireSound(RunHeaderCheck(checkpoint));
  for (const char* suffix : {".weight_packed", ".weight_scale", ".weight_shape"}) {
    checkpoint.Remove("model.layers.0.mlp.gate_proj" + std::string(suffix));
  }
  checkpoint.tensors.push_back({"model.layers.0.mlp.gate_proj.weight",
                                "BF16",
                                {kWideN, kWideK},
                                std::vector<std::byte>(kWideN * kWideK * 2)});
  checkpoint.config["quantization_config"]["ignore"] = {"model.layers.0.mlp.gate_proj"};
  RequireOnly(RunHeaderCheck(checkpoint), "module-siblings-differ", "gate_proj not quantized",
              CheckVerdict::kWarnings);
}

TEST_CASE("a tied head must be the embedding") {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.config["quantization_config"]["ignore"] = {"lm_head"};
  const std::vector<std::byte> bytes = WideValues(2 * kWideK);
  checkpoint.tensors.push_back({"model.embed_tokens.weight", "BF16", {2, kWideK}, bytes});
  RequireSound(RunCheck(checkpoint));
  checkpoint.tensors.push_back({"lm_head.weight", "BF16", {2, kWideK}, bytes});
  RequireOnly(RunCheck(checkpoint), "tied-head-stored-twice", "model.embed_tokens.weight",
              CheckVerdict::kSound);
  checkpoint.At("lm_head.weight").bytes[4] ^= std::byte{1};
  RequireOnly(RunCheck(checkpoint), "tied-head-differs", "not the bytes", CheckVerdict::kWarnings);
  // The top level decides, as in the runtimes.
  checkpoint.config["text_config"] = {{"tie_word_embeddings", false}};
  RequireOnly(RunCheck(checkpoint), "tied-head-differs", "not the bytes", CheckVerdict::kWarnings);
  checkpoint.config["text_config"]["tie_word_embeddings"] = true;
  checkpoint.config["tie_word_embeddings"] = false;
  CHECK(RunCheck(checkpoint).verdict == CheckVerdict::kSound);
  checkpoint.config.erase("tie_word_embeddings");
  RequireOnly(RunCheck(checkpoint), "tied-head-differs", "not the bytes", CheckVerdict::kWarnings);
  checkpoint.config.erase("text_config");
  checkpoint.config["tie_word_embeddings"] = false;
  RequireSound(RunCheck(checkpoint));
}

TEST_CASE("all modules that cannot be read are listed") {
  TestCheckpoint checkpoint = WideExample(3);
  checkpoint.Remove(WideModule(0) + ".weight_scale");
  checkpoint.Remove(WideModule(2) + ".weight_scale");
  const CheckReport report = RunHeaderCheck(checkpoint);
  INFO(Lines(report));
  CHECK(report.verdict == CheckVerdict::kMalformed);
  CHECK(CheckExitCode(report.verdict, false) == 3);
}

TEST_CASE("a float checkpoint is unsupported, a broken one malformed") {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.config.erase("quantization_config");
  CheckReport report = RunHeaderCheck(checkpoint);
  CHECK(report.findings.at(0).id == "config-missing");
  CHECK(CheckExitCode(report.verdict, false) == 5);

  checkpoint = WideExample();
  checkpoint.At(WideModule(0) + ".weight_scale").shape = {1, 2, 3};
  report = RunHeaderCheck(checkpoint);
  CHECK(CheckExitCode(report.verdict, false) == 3);
}

TEST_CASE("roles fold numbers") {
  CHECK(RoleOf("model.layers.12.mlp.experts.3.up_proj") == "model.layers.#.mlp.experts.#.up_proj");
  CHECK(RoleOf("lm_head") == "lm_head");
  CHECK(IsDecoderModule("model.layers.12.mlp.up_proj"));
  CHECK_FALSE(IsDecoderModule("vision.layers.12.mlp.up_proj"));
}

}  // namespace
}  // namespace prepack::testing
