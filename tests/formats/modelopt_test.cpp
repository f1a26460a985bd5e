// ModelOpt's FP8.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/fp8_example.h"
#include "formats/read_helpers.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

Json& ModelOptConfigOf(TestCheckpoint& stored) {
  return stored.config["quantization_config"];
}

// Blocks of 128 × 128 of which two are there: [200, 5].
TestCheckpoint ModelOptBlocks() {
  TestCheckpoint stored = ModelOptFp8();
  ModelOptConfigOf(stored)["quant_algo"] = "fp8_pb_wo";
  stored.Remove(kFp8Module + ".input_scale");
  TestTensor& weight = stored.At(kFp8Module + ".weight");
  weight.shape = {200, 5};
  weight.bytes.resize(1000, std::byte{0x38});
  TestTensor& scale = stored.At(kFp8Module + ".weight_scale");
  scale.shape = {2, 1, 1, 1};
  scale.bytes = Floats32({1, 3});
  return stored;
}

TestCheckpoint ModelOptMixed() {
  TestCheckpoint stored = ModelOptFp8();
  Json& config = ModelOptConfigOf(stored);
  config["quant_algo"] = "MIXED_PRECISION";
  config["quantized_layers"] = {{kFp8Module, {{"quant_algo", "FP8"}}}};
  return stored;
}

std::string SchemeOfModule(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.format == "modelopt");
  CHECK(opened.model.findings.empty());
  return DescribeScheme(opened.Module(kFp8Module).scheme());
}

TEST_CASE("ModelOpt's algorithms say what FP8 weights are, in any case of letters") {
  CHECK(SchemeOfModule(ModelOptFp8()) == "wfp8afp8 tensor");
  TestCheckpoint stored = ModelOptFp8();
  ModelOptConfigOf(stored)["quant_algo"] = "fp8_per_channel_PER_TOKEN";
  stored.At(kFp8Module + ".weight_scale").shape = {3};
  stored.At(kFp8Module + ".weight_scale").bytes = Floats32({1, 2, 3});
  CHECK(SchemeOfModule(stored) == "wfp8afp8 channel");
}

TEST_CASE("ModelOpt's blocks, under both names and in all shapes of their scales") {
  for (const std::string name : {"weight_scale", "weight_scale_inv"}) {
    for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{2, 1, 1, 1}, {2, 1}}) {
      TestCheckpoint stored = ModelOptBlocks();
      stored.At(kFp8Module + ".weight_scale").shape = shape;
      stored.At(kFp8Module + ".weight_scale").name = kFp8Module + "." + name;
      if (name == "weight_scale_inv") {
        ModelOptConfigOf(stored)["quant_algo"] = "FP8_BLOCK_SCALES";
        ModelOptConfigOf(stored)["group_size"] = 128;
      }
      const TempFolder folder;
      stored.Write(folder.path());
      const OpenedModel opened = MustOpen(folder.path());
      const QuantizedLinear& linear = opened.Module(kFp8Module);
      CHECK(Dequantize(linear, 127, 2)[0] == 1);
      CHECK(Dequantize(linear, 127, 2)[5] == 3);
      CHECK(SchemeName(linear.scheme()) == (name == "weight_scale" ? "wfp8a16" : "wfp8afp8"));
    }
  }
  TestCheckpoint one = ModelOptFp8();
  ModelOptConfigOf(one)["quant_algo"] = "FP8_PB_WO";
  one.Remove(kFp8Module + ".input_scale");
  CHECK(SchemeOfModule(one) == "wfp8a16 block 128x128");
}

TEST_CASE("an entry of quantized_layers may mean all that lies below it") {
  for (const std::string& key : {kFp8Module, std::string("model.layers.0.mlp")}) {
    TestCheckpoint stored = ModelOptMixed();
    ModelOptConfigOf(stored)["quantized_layers"] = {{"model.layers.0", {{"quant_algo", "NVFP4"}}},
                                                    {key, {{"quant_algo", "FP8"}}}};
    CHECK(SchemeOfModule(stored) == "wfp8afp8 tensor");
  }
}

TEST_CASE("ModelOpt's own file declares as config.json does, with it or instead of it") {
  TestCheckpoint stored = ModelOptFp8();
  const auto read = [&](const Json& file) {
    const TempFolder folder;
    stored.Write(folder.path());
    std::ofstream(folder.path() / "hf_quant_config.json") << file.dump();
    return ReadEverything(folder.path());
  };
  const Json file = {{"producer", {{"name", "modelopt"}}},
                     {"quantization", {{"quant_algo", "FP8"}, {"exclude_modules", {"lm_head"}}}}};
  RequireOk(read(file));
  Json other = file;
  other["quantization"]["quant_algo"] = "FP8_PB_WO";
  Status status = read(other);
  CheckError(status, ErrorKind::kMalformed,
             "hf_quant_config.json: quantization.quant_algo: two copies of the quantization config "
             "disagree (found FP8_PB_WO, expected FP8, as config.json: quantization_config says");
  CHECK(status.id() == "config-conflict");
  stored.config = {{"model_type", "llama"}};
  RequireOk(read(file));
  status = read({{"producer", {{"name", "modelopt"}}}});
  CheckError(status, ErrorKind::kMalformed,
             "hf_quant_config.json: the file does not say how the model is quantized");
  CHECK(status.id() == "config-missing");

  stored = ModelOptMixed();
  other["quantization"] = ModelOptConfigOf(stored);
  RequireOk(read(other));
  other["quantization"]["quantized_layers"][kFp8Module]["quant_algo"] = "FP8_PB_WO";
  status = read(other);
  CheckError(status, ErrorKind::kMalformed, "(found FP8_PB_WO, expected FP8, as config.json");
  other["quantization"] = ModelOptConfigOf(stored);
  other["quantization"]["quantized_layers"]["a.b"] = {{"quant_algo", "FP8"}};
  status = read(other);
  CheckError(status, ErrorKind::kMalformed, "(found 2 entries, expected 1, as config.json");
  other["quantization"]["quantized_layers"].erase(kFp8Module);
  status = read(other);
  CheckError(status, ErrorKind::kMalformed, "(found absent, expected FP8, as config.json");
}

TEST_CASE("modules that ModelOpt excludes or wants, and that are otherwise, are findings") {
  TestCheckpoint stored = ModelOptFp8();
  ModelOptConfigOf(stored)["ignore"] = {"*.mlp.up_*"};
  std::vector<Finding> findings = FindingsOf(stored);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].id == "module-ignored-but-quantized");
  CHECK(findings[0].where == kFp8Module);

  stored = ModelOptFp8();
  AddZeros(stored, "model.layers.0.mlp.gate_proj.weight", "BF16", {3, 5}, 30);
  findings = FindingsOf(stored);
  CHECK(HasFinding(findings, "module-targeted-but-plain",
                   "the config does not exclude the module, but it is not quantized"));
  ModelOptConfigOf(stored)["ignore"] = {"model.layers.0.mlp.gate*"};
  CHECK_FALSE(HasFinding(FindingsOf(stored), "module-targeted-but-plain", ""));
}

TEST_CASE("the scales of a key-value cache pass through") {
  TestCheckpoint stored = ModelOptFp8();
  const std::string name = "model.layers.0.self_attn.k_proj";
  for (TestTensor& tensor : stored.tensors) {
    if (tensor.name.starts_with(kFp8Module)) {
      tensor.name = name + tensor.name.substr(kFp8Module.size());
    }
  }
  stored.tensors.push_back({name + ".k_scale", "F32", {}, Floats32({1})});
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.findings.empty());
  CHECK(opened.Module(name).source_tensors().size() == 3);
}

TEST_CASE("what is wrong with a checkpoint of ModelOpt is said") {
  using T = TestCheckpoint&;
  const auto malformed = ErrorKind::kMalformed;
  const auto unsupported = ErrorKind::kUnsupported;
  const std::vector<FormatDefect> defects = {
      {"NVFP4 with AWQ", ModelOptFp8, [](T t) { ModelOptConfigOf(t)["quant_algo"] = "NVFP4_AWQ"; },
       unsupported, "scheme-unsupported",
       "quant_algo: ModelOpt's NVFP4_AWQ weights are not supported"},
      {"an unknown algorithm", ModelOptFp8, [](T t) { ModelOptConfigOf(t)["quant_algo"] = "FP9"; },
       unsupported, "config-keyword-unknown", "quant_algo: unknown keyword (found \"FP9\""},
      {"no algorithm", ModelOptFp8, [](T t) { ModelOptConfigOf(t).erase("quant_algo"); }, malformed,
       "config-field-invalid", "quant_algo: the algorithm is missing"},
      {"an algorithm that is no name", ModelOptFp8,
       [](T t) { ModelOptConfigOf(t)["quant_algo"] = 8; }, malformed, "config-field-invalid",
       "quant_algo: the field has the wrong type"},
      {"an ignore list that is none", ModelOptFp8,
       [](T t) { ModelOptConfigOf(t)["ignore"] = "lm_head"; }, malformed, "config-field-invalid",
       "ignore: the field has the wrong type"},
      {"blocks of another size", ModelOptBlocks,
       [](T t) { ModelOptConfigOf(t)["group_size"] = 64; }, unsupported, "scheme-unsupported",
       "group_size: FP8 blocks of another size are not supported (found 64, expected 128"},
      {"a size that is no number", ModelOptBlocks,
       [](T t) { ModelOptConfigOf(t)["group_size"] = "all"; }, malformed, "config-field-invalid",
       "group_size: the field has the wrong type"},
      {"no entries", ModelOptMixed, [](T t) { ModelOptConfigOf(t).erase("quantized_layers"); },
       malformed, "config-field-invalid",
       "quantized_layers: nothing says which modules are quantized"},
      {"entries that are none", ModelOptMixed,
       [](T t) { ModelOptConfigOf(t)["quantized_layers"] = {1}; }, malformed,
       "config-field-invalid", "quantized_layers: the field has the wrong type"},
      {"an entry that is none", ModelOptMixed,
       [](T t) { ModelOptConfigOf(t)["quantized_layers"][kFp8Module] = "FP8"; }, malformed,
       "config-field-invalid", "the field has the wrong type (found \"FP8\""},
      {"an entry with another encoding", ModelOptMixed,
       [](T t) {
         ModelOptConfigOf(t)["quantized_layers"][kFp8Module]["weight_scale_encoding"] = "csf";
       },
       unsupported, "config-key-unknown", "weight_scale_encoding"},
      {"an entry that is mixed again", ModelOptMixed,
       [](T t) {
         ModelOptConfigOf(t)["quantized_layers"][kFp8Module]["quant_algo"] = "MIXED_PRECISION";
       },
       unsupported, "config-keyword-unknown", "expected the algorithm of one module"},
      {"an entry with blocks of another size", ModelOptMixed,
       [](T t) {
         ModelOptConfigOf(t)["quantized_layers"][kFp8Module] = {{"quant_algo", "FP8_BLOCK_SCALES"},
                                                                {"group_size", 32}};
       },
       unsupported, "scheme-unsupported", "FP8 blocks of another size are not supported (found 32"},
      {"an entry of another module", ModelOptMixed,
       [](T t) {
         ModelOptConfigOf(t)["quantized_layers"] = {{"model.layers.1", {{"quant_algo", "FP8"}}}};
       },
       malformed, "module-without-group", "quantized_layers does not name it"},
      {"an entry that is not read", ModelOptMixed,
       [](T t) { ModelOptConfigOf(t)["quantized_layers"][kFp8Module]["quant_algo"] = "W4A16_AWQ"; },
       unsupported, "scheme-unsupported",
       "mlp.up_proj: ModelOpt's W4A16_AWQ weights are not supported (found weight F8_E4M3 [3, "
       "5]"},
      {"an entry that is not quantized", ModelOptMixed,
       [](T t) {
         ModelOptConfigOf(t)["quantized_layers"][kFp8Module]["quant_algo"] = "UNQUANTIZED";
       },
       malformed, "module-scheme-contradiction",
       "the config says that the module is not quantized, but it is"},
      {"bytes of another kind", ModelOptFp8, [](T t) { t.At(kFp8Module + ".weight").dtype = "U8"; },
       unsupported, "storage-unsupported", "FP8 weights of this type are not supported (found U8"},
      {"another FP8", ModelOptFp8, [](T t) { t.At(kFp8Module + ".weight").dtype = "F8_E5M2"; },
       unsupported, "storage-unsupported",
       "FP8 weights of this type are not supported (found F8_E5M2"},
      {"a scale for the activations", ModelOptFp8,
       [](T t) { AddZeros(t, kFp8Module + ".pre_quant_scale", "BF16", {5}, 10); }, unsupported,
       "storage-unsupported", "pre_quant_scale: the runtime would have to do more than multiply"},
      {"no scale", ModelOptFp8, [](T t) { t.Remove(kFp8Module + ".weight_scale"); }, malformed,
       "tensor-missing", "the scale of the FP8 weight is missing"},
      {"two scales", ModelOptFp8,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".weight_scale_inv", "F32", {}, Floats32({1})});
       },
       malformed, "weight-twice", "the module has both weight_scale_inv and weight_scale"},
      {"scales of channels for one of a matrix", ModelOptFp8,
       [](T t) {
         t.At(kFp8Module + ".weight_scale").shape = {3};
         t.At(kFp8Module + ".weight_scale").bytes = Floats32({1, 1, 1});
       },
       malformed, "tensor-shape", "the shape of the scales contradicts the weight (found [3]"},
      {"scales of other blocks", ModelOptBlocks,
       [](T t) {
         t.At(kFp8Module + ".weight_scale").shape = {1, 1, 2, 1};
       },
       malformed, "tensor-shape",
       "(found [1, 1, 2, 1], expected [2, 1] for a block scheme of [200, 5]"},
      {"a scale that is NaN", ModelOptFp8,
       [](T t) { t.At(kFp8Module + ".weight_scale").bytes = Hex("00 00 c0 7f"); }, malformed,
       "scale-not-finite", "is not a finite number (found NaN"},
      {"a scale that is infinite", ModelOptFp8,
       [](T t) { t.At(kFp8Module + ".weight_scale").bytes = Hex("00 00 80 7f"); }, malformed,
       "scale-not-finite", "is not a finite number (found infinity"},
      {"a scale that is zero", ModelOptFp8,
       [](T t) { t.At(kFp8Module + ".weight_scale").bytes = Floats32({0}); }, malformed,
       "scale-zero", "is zero, but the group has weights"},
      {"a code that is NaN", ModelOptFp8,
       [](T t) { t.At(kFp8Module + ".weight").bytes[7] = std::byte{0x7F}; }, malformed, "code-nan",
       "an FP8 weight is NaN (found 0x7F at [1, 2]"},
      {"no scale of activations", ModelOptFp8, [](T t) { t.Remove(kFp8Module + ".input_scale"); },
       malformed, "input-missing", "input_scale is missing"},
      {"a scale of activations that is zero", ModelOptFp8,
       [](T t) { t.At(kFp8Module + ".input_scale").bytes = Floats32({0}); }, malformed,
       "input-scale-invalid", "an activation scale is not a positive number"},
      {"an embedding", ModelOptFp8,
       [](T t) {
         for (TestTensor& tensor : t.tensors) {
           if (!tensor.name.starts_with(kFp8Module)) continue;
           tensor.name = "model.embed_tokens" + tensor.name.substr(kFp8Module.size());
         }
       },
       unsupported, "embedding-quantized",
       "model.embed_tokens: quantized embeddings are not supported"},
      {"nothing quantized", ModelOptFp8,
       [](T t) { t.tensors.erase(t.tensors.begin(), t.tensors.begin() + 3); }, malformed,
       "nothing-quantized", "the config declares quantized weights, but no tensor is one"},
  };
  CheckDefects(defects);
}

}  // namespace
}  // namespace prepack::testing
