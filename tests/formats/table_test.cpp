#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "formats/auto_round_example.h"
#include "formats/checkpoint_builder.h"
#include "formats/defects.h"
#include "prepack/formats/format.h"
#include "prepack/formats/quantization_config.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// How a checkpoint with this config.json is refused.
Status ReadStatus(const Json& config) {
  const TempFolder folder;
  TestCheckpoint stored;
  stored.config = config;
  stored.tensors.push_back({"a.weight", "BF16", {1}, Hex("80 3f")});
  stored.Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  INFO(checkpoint.status().ToString());
  REQUIRE(checkpoint.ok());
  const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  REQUIRE_FALSE(model.ok());
  return model.status();
}

TEST_CASE("every format has an id and a reader") {
  REQUIRE_FALSE(AllFormats().empty());
  for (const Format& format : AllFormats()) {
    CHECK_FALSE(format.id.empty());
    CHECK(format.read != nullptr);
  }
}

TEST_CASE("checkpoints of no known format are refused with what is known") {
  const Status none = ReadStatus({{"model_type", "llama"}});
  CHECK(none.kind() == ErrorKind::kUnsupported);
  CHECK(none.ToString() ==
        "config.json: the checkpoint is not quantized: no quantization_config. Quantize it first, "
        "or give the folder that holds the config.json of the quantized model");

  const Status hqq = ReadStatus({{"quantization_config", {{"quant_method", "HQQ"}}}});
  CHECK(hqq.kind() == ErrorKind::kUnsupported);
  CHECK(hqq.id() == "method-unsupported");
  CHECK(hqq.what() == "HQQ checkpoints are not supported");
  CHECK(hqq.found() == "quant_method \"hqq\"");
  CHECK_THAT(hqq.expected(), Catch::StartsWith("compressed-tensors"));
  CHECK_THAT(hqq.hint(), Catch::StartsWith("Download a GPTQ, AWQ, FP8 or compressed-tensors "
                                           "release of the same model instead"));
  for (const char* method : {"exl3", "bitsandbytes", "torchao", "gguf", "marlin", "unheard-of"}) {
    const Status status = ReadStatus({{"quantization_config", {{"quant_method", method}}}});
    CHECK_THAT(status.hint(), Catch::Contains("compressed-tensors release of the"));
  }
  const Status strange = ReadStatus({{"quantization_config", {{"quant_method", "my\x01own"}}}});
  CHECK(strange.kind() == ErrorKind::kUnsupported);
  CHECK(strange.what() == "my\\x01own checkpoints are not supported");

  const Status packed = ReadStatus({{"quantization_config", {{"quant_method", "prepack"}}}});
  CHECK(packed.kind() == ErrorKind::kUnsupported);
  CHECK(packed.ToString() ==
        "config.json: quantization_config: the folder is already packed. Convert the source "
        "checkpoint that it was made from");

  const Status unnamed = ReadStatus({{"quantization_config", {{"weights", 4}}}});
  CHECK(unnamed.kind() == ErrorKind::kUnsupported);
  CHECK_THAT(unnamed.ToString(), Catch::Contains("quant_method is missing"));

  const Status list = ReadStatus({{"quantization_config", Json::array()}});
  CHECK(list.kind() == ErrorKind::kMalformed);
  const Status number = ReadStatus({{"quantization_config", {{"quant_method", 4}}}});
  CHECK(number.kind() == ErrorKind::kMalformed);
}

TEST_CASE("the declaration is found where the loaders look for it, in their order") {
  const auto find = [](const Json& config) {
    const TempFolder folder;
    TestCheckpoint stored;
    stored.config = config;
    stored.tensors.push_back({"a.weight", "BF16", {1}, Hex("80 3f")});
    stored.Write(folder.path());
    const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
    REQUIRE(checkpoint.ok());
    const auto found = FindQuantizationConfigs(*checkpoint);
    INFO(found.status().ToString());
    REQUIRE(found.ok());
    return found->front().where + " " + found->front().method;
  };
  const Json ct = {{"quant_method", "compressed_tensors"}};
  const Json bare = {{"bits", 4}};
  CHECK(find({{"quantization_config", ct}, {"compression_config", bare}}) ==
        "config.json: quantization_config compressed-tensors");
  CHECK(find({{"compression_config", bare}, {"text_config", {{"quantization_config", ct}}}}) ==
        "config.json: text_config.quantization_config compressed-tensors");
  CHECK(find({{"quantization_config", nullptr}, {"compression_config", ct}}) ==
        "config.json: compression_config compressed-tensors");
  CHECK(find({{"compression_config", {{"config_groups", Json::object()}}}}) ==
        "config.json: compression_config compressed-tensors");
  CHECK(find({{"quantization_config", {{"format", "x"}, {"quantization_config", ct}}}}) ==
        "config.json: quantization_config.quantization_config compressed-tensors");
}

TEST_CASE("copies in other files stand in for config.json, and must name the same method") {
  const auto find = [](const std::string& file, const Json& copy, const Json& config) {
    const TempFolder folder;
    TestCheckpoint stored;
    stored.config = config;
    stored.tensors.push_back({"a.weight", "BF16", {1}, Hex("80 3f")});
    stored.Write(folder.path());
    std::ofstream(folder.path() / file) << copy.dump();
    const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
    REQUIRE(checkpoint.ok());
    const auto found = FindQuantizationConfigs(*checkpoint);
    return found.ok() ? found->front().where + " " + found->front().method
                      : found.status().ToString();
  };
  const Json bare_gptq = {{"bits", 4}, {"desc_act", false}};
  const Json bare_awq = {{"w_bit", 4}, {"q_group_size", 128}};
  const Json none = Json::object();
  CHECK(find("quantize_config.json", bare_gptq, none) == "quantize_config.json gptq");
  CHECK(find("quant_config.json", bare_awq, none) == "quant_config.json awq");
  CHECK(find("quantization_config.json", {{"quant_method", "intel/auto-round"}}, none) ==
        "quantization_config.json auto-round");
  CHECK(find("params.json", {{"quantization", {{"quant_method", "fp8"}}}}, none) ==
        "params.json: quantization fp8");
  // A file of another quantizer, beside a declaration in config.json, was left behind.
  CHECK(find("quantize_config.json", {{"quant_method", "awq"}},
             {{"quantization_config", {{"quant_method", "gptq"}}}}) ==
        "config.json: quantization_config gptq");
  CHECK_THAT(find("quantize_config.json", bare_gptq,
                  {{"quantization_config", {{"quant_method", "gptq"}}},
                   {"text_config", {{"quantization_config", {{"quant_method", "awq"}}}}}}),
             Catch::Contains("two declarations name different quantization methods"));
}

TEST_CASE("files of two quantizers, neither of which config.json names, are refused") {
  const TempFolder folder;
  TestCheckpoint stored;
  stored.tensors.push_back({"a.weight", "BF16", {1}, Hex("80 3f")});
  stored.Write(folder.path());
  std::ofstream(folder.path() / "quantize_config.json") << R"({"bits": 4, "desc_act": false})";
  std::ofstream(folder.path() / "quant_config.json") << R"({"w_bit": 4, "q_group_size": 128})";
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  const Status status = FindQuantizationConfigs(*checkpoint).status();
  CHECK_THAT(status.what(), Catch::Contains("two declarations name different"));
  CHECK(status.id() == "config-conflict");
}

TEST_CASE("a file that a converter left behind is reported, and does not count") {
  const TestCheckpoint stored = ArGptq();
  const TempFolder folder;
  stored.Write(folder.path());
  std::ofstream(folder.path() / "quant_config.json")
      << R"({"w_bit": 3, "q_group_size": 64, "zero_point": true})";
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.format == "auto-round");
  CHECK(HasFinding(opened.model.findings, "config-left-behind",
                   "the file declares \"awq\", and config.json: quantization_config "
                   "\"auto-round\", which counts"));
}

// Why a checkpoint of one tensor without quantization_config is refused, as "ID: TEXT".
std::string Undeclared(const Json& config, const std::string& tensor, const std::string& file) {
  const TempFolder folder;
  TestCheckpoint stored;
  stored.config = config;
  stored.tensors.push_back({tensor, "BF16", {1}, Hex("80 3f")});
  stored.Write(folder.path());
  if (!file.empty()) std::ofstream(folder.path() / file) << "{}";
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  const Status status = ReadQuantizedModel(*checkpoint).status();
  CHECK(status.kind() == ErrorKind::kUnsupported);
  return std::string(status.id()) + ": " + status.ToString();
}

TEST_CASE("Mistral's own form is refused by name") {
  const TempFolder folder;
  TestCheckpoint stored;
  stored.tensors.push_back({"layers.0.attention.wq.qscale_weight", "F32", {}, Hex("00 00 80 3f")});
  stored.Write(folder.path());
  std::ofstream(folder.path() / "params.json")
      << R"({"dim": 8, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}})";
  const Checkpoint checkpoint = Value(Checkpoint::Open(folder.path()));
  const Status status = ReadQuantizedModel(checkpoint).status();
  CheckError(status, ErrorKind::kUnsupported,
             "params.json: quantization: Mistral's own form of a checkpoint is not supported");
  CHECK(status.id() == "method-unsupported");
}

TEST_CASE("checkpoints that declare in another way, or not at all, are refused by name") {
  const Json none = Json::object();
  const Json mlx = {{"group_size", 64}, {"bits", 4}};
  CHECK_THAT(Undeclared({{"quantization", mlx}}, "a.weight", ""),
             Catch::StartsWith("method-unsupported: config.json: quantization: arrays of Apple's "
                               "MLX are not supported"));
  CHECK_THAT(Undeclared({{"quantization", mlx}, {"quantization_config", mlx}}, "a.weight", ""),
             Catch::StartsWith("method-unsupported: config.json: quantization_config: arrays of"));
  for (const char* tensor : {"a.qweight", "a.weight_packed", "a.experts.gate_scale_inv"}) {
    CHECK_THAT(Undeclared(none, tensor, ""),
               Catch::StartsWith("config-missing: config.json: the checkpoint is quantized, but "
                                 "its quantization_config is missing "
                                 "(found tensor " +
                                 std::string(tensor)));
  }
  CHECK_THAT(Undeclared(none, "a.weight", "generation_config.json"),
             Catch::StartsWith("config-missing: config.json: the checkpoint is not quantized"));
  CHECK_THAT(Undeclared({{"quantization_config", {{"quant_method", "gguf"}}}}, "a.weight", ""),
             Catch::Contains("llama.cpp reads such blocks from .gguf files only"));
}

}  // namespace
}  // namespace prepack::testing
