#include <algorithm>
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

TEST_CASE("FP8 blocks of any size are scaled block by block") {
  const TempFolder folder;
  Fp8Blocks().Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.format == "fp8");
  REQUIRE(opened.model.modules.size() == 1);
  const QuantizedLinear& linear = opened.Module(kFp8Module);
  CHECK(DescribeScheme(linear.scheme()) == "wfp8afp8 block 2x4");
  CHECK(DescribeActivations(linear.scheme().activations) == "8-bit float per group of 4 dynamic");
  CHECK(Dequantize(linear, 0, 3) ==
        std::vector<float>{1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4});
  CHECK(Dequantize(linear, 1, 2) == std::vector<float>{1, 1, 1, 1, 2, 3, 3, 3, 3, 4});
}

TEST_CASE("one scale per module and a static scale of activations") {
  const TempFolder folder;
  Fp8Static().Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kFp8Module);
  CHECK(DescribeScheme(linear.scheme()) == "wfp8afp8 tensor");
  CHECK(Dequantize(linear, 0, 3) == std::vector<float>(15, 2.0F));
  REQUIRE(linear.input().has_value());
  CHECK(linear.input()->scale == 0.5F);
}

// One of GPTQModel's, whose scales are divisors: 1, 2, 3 and 4 for the four blocks.
TestCheckpoint Fp8Divided() {
  TestCheckpoint stored = Fp8Blocks();
  Json& config = stored.config["quantization_config"];
  config.erase("activation_scheme");
  config.erase("fmt");
  config["format"] = "float8_e4m3fn";
  config["weight_scale_method"] = "block";
  config["weight_scale_semantics"] = "inverse";
  return stored;
}

TEST_CASE("GPTQModel's scales divide, and activations are left alone") {
  const TempFolder folder;
  Fp8Divided().Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kFp8Module);
  CHECK(DescribeScheme(linear.scheme()) == "wfp8a16 block 2x4");
  const float third = 1.0F / 3.0F;
  CHECK(Dequantize(linear, 1, 2) ==
        std::vector<float>{1, 1, 1, 1, 0.5F, third, third, third, third, 0.25F});
  CHECK(linear.stored_scale_dtype() == DType::kF32);
  CHECK(opened.model.findings.empty());
}

TEST_CASE("rules of GPTQModel's dynamic: other blocks, none, and modules left out") {
  TestCheckpoint stored = Fp8Divided();
  Json& config = stored.config["quantization_config"];
  const auto scheme_with = [&](const Json& dynamic) {
    config["dynamic"] = dynamic;
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    return DescribeScheme(opened.Module(kFp8Module).scheme());
  };
  CHECK(scheme_with({{R"(.*\.down_proj)", {{"weight_block_size", {9, 9}}}}}) ==
        "wfp8a16 block 2x4");
  config["weight_block_size"] = {9, 9};
  CHECK(scheme_with({{R"(+:.*\.up_proj)", {{"weight_block_size", {2, 4}}}}}) ==
        "wfp8a16 block 2x4");
  TestTensor& scale = stored.At(kFp8Module + ".weight_scale_inv");
  scale.shape = {3};
  scale.bytes.resize(12);
  CHECK(scheme_with({{".*", {{"weight_scale_method", "row"}}}}) == "wfp8a16 channel");
  scale.shape = {};
  scale.bytes.resize(4);
  CHECK(scheme_with({{".*", {{"weight_scale_method", "tensor"}}}}) == "wfp8a16 tensor");

  config.erase("weight_block_size");
  config["dynamic"] = {{R"(-:.*\.up_proj)", Json::object()}};
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "module-ignored-but-quantized");
}

TEST_CASE("scales of a channel, and exponents for scales, under each of their names") {
  TestCheckpoint stored = Fp8Blocks();
  const auto weights = [&] {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    return Dequantize(opened.Module(kFp8Module), 0, 3);
  };
  TestTensor& scale = stored.At(kFp8Module + ".weight_scale_inv");
  scale.dtype = "F8_E8M0";
  scale.bytes = Hex("7f 80 81 7e");  // 1, 2, 4, 1/2
  const std::vector<float> expected = {1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 4, 4, 4, 4, 0.5F};
  CHECK(weights() == expected);
  scale.name = kFp8Module + ".scale";  // DeepSeek V4
  CHECK(weights() == expected);
  scale.dtype = "U8";
  stored.config["quantization_config"]["scale_fmt"] = "ue8m0";
  CHECK(weights() == expected);
  stored.config["quantization_config"]["fmt"] = "float8_e4m3fn";  // MiniMax
  CHECK(weights() == expected);

  stored.config["quantization_config"].erase("weight_block_size");
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{3}, {3, 1}}) {
    TestTensor& of_channels = stored.At(kFp8Module + ".scale");
    of_channels.shape = shape;
    of_channels.bytes = Hex("7f 80 00");  // the last: the smallest, which is subnormal in f32
    CHECK(weights()[4] == 1);
    CHECK(weights()[5] == 2);
    CHECK(weights()[14] == 0x1p-127F);
  }
}

TEST_CASE("transformers calls the scale of activations activation_scale") {
  TestCheckpoint stored = Fp8Static();
  stored.At(kFp8Module + ".input_scale").name = kFp8Module + ".activation_scale";
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kFp8Module);
  REQUIRE(linear.input().has_value());
  CHECK(linear.input()->scale == 0.5F);
  CHECK(linear.source_tensors().size() == 3);
}

// K = 3 and N = 5, as the bias says.
void MakeConv1d(TestCheckpoint& stored) {
  stored.config["model_type"] = "gpt2";
  stored.tensors[0].name = "h.0.mlp.c_fc.weight";
  stored.tensors[1].name = "h.0.mlp.c_fc.weight_scale_inv";
  stored.tensors.push_back({"h.0.mlp.c_fc.bias", "BF16", {5}, std::vector<std::byte>(10)});
}

TEST_CASE("a Conv1D that is stored as any other linear layer is read") {
  TestCheckpoint stored = Fp8Blocks();
  MakeConv1d(stored);
  TestTensor& bias = stored.At("h.0.mlp.c_fc.bias");
  bias.shape = {3};
  bias.bytes.resize(6);
  const TempFolder folder;
  stored.Write(folder.path());
  CHECK(MustOpen(folder.path()).Module("h.0.mlp.c_fc").n() == 3);
}

TEST_CASE("what is wrong with an FP8 checkpoint is said") {
  struct Defect {
    std::string name;
    TestCheckpoint (*good)();
    void (*break_it)(TestCheckpoint& stored);
    ErrorKind kind;
    std::string text;
    std::string id;
  };
  using T = TestCheckpoint&;
  const auto malformed = ErrorKind::kMalformed;
  const auto unsupported = ErrorKind::kUnsupported;
  const std::vector<Defect> defects = {
      {"no scale", Fp8Blocks, [](T t) { t.Remove(kFp8Module + ".weight_scale_inv"); }, malformed,
       ".weight: the scale of the FP8 weight is missing", "tensor-missing"},
      {"both scales", Fp8Blocks,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".weight_scale", "BF16", {1}, Hex("00 40")});
       },
       malformed, "the module has both weight_scale and weight_scale_inv", "weight-twice"},
      {"scales of other blocks", Fp8Blocks,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {2, 2};
       },
       malformed,
       "the shape of the scales contradicts the weight (found [2, 2], expected [2, 3] for a block "
       "scheme of [3, 5])",
       "tensor-shape"},
      {"no block size", Fp8Blocks,
       [](T t) { t.config["quantization_config"].erase("weight_block_size"); }, malformed,
       "(found [2, 2], expected [3, 1] for a channel scheme", "tensor-shape"},
      {"a block of zero", Fp8Blocks,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {0, 128};
       },
       malformed, "weight_block_size: the block is not two positive numbers",
       "config-field-invalid"},
      {"a weight of one dimension", Fp8Blocks,
       [](T t) { t.At(kFp8Module + ".weight").shape = {15}; }, malformed,
       "the weight is empty or not a matrix (found [15]", "tensor-shape"},
      {"a NaN weight", Fp8Blocks,
       [](T t) { t.At(kFp8Module + ".weight").bytes[7] = std::byte{0xFF}; }, malformed,
       ".weight: an FP8 weight is NaN (found 0xFF at [1, 2])", "code-nan"},
      {"a NaN scale", Fp8Blocks,
       [](T t) {
         t.At(kFp8Module + ".weight_scale_inv").bytes[14] = std::byte{0xC0};
         t.At(kFp8Module + ".weight_scale_inv").bytes[15] = std::byte{0x7F};
       },
       malformed, "the scale of channel 2, group 1 is not a finite number (found NaN)",
       "scale-not-finite"},
      {"E5M2 by dtype", Fp8Blocks, [](T t) { t.At(kFp8Module + ".weight").dtype = "F8_E5M2"; },
       unsupported, "FP8 weights of this type are not supported (found F8_E5M2",
       "storage-unsupported"},
      {"E5M2 by name", Fp8Blocks, [](T t) { t.config["quantization_config"]["fmt"] = "e5m2"; },
       unsupported, "fmt: prepack reads only E4M3 weights", "scheme-unsupported"},
      {"an unknown activation scheme", Fp8Blocks,
       [](T t) { t.config["quantization_config"]["activation_scheme"] = "magic"; }, unsupported,
       "activation_scheme: unknown keyword (found \"magic\"", "config-keyword-unknown"},
      {"a list that is none", Fp8Blocks,
       [](T t) { t.config["quantization_config"]["ignored_layers"] = "lm_head"; }, malformed,
       "ignored_layers: the field has the wrong type", "config-field-invalid"},
      {"nothing quantized", Fp8Blocks,
       [](T t) { t.tensors.erase(t.tensors.begin(), t.tensors.begin() + 2); }, malformed,
       "the config declares FP8 weights, but no tensor is one", "nothing-quantized"},
      {"a divisor of zero", Fp8Divided,
       [](T t) { std::ranges::fill(t.At(kFp8Module + ".weight_scale_inv").bytes, std::byte{0}); },
       malformed, "the scale of channel 0, group 0 is not a finite number (found infinity)",
       "scale-not-finite"},
      {"a divisor by another name", Fp8Divided,
       [](T t) { t.At(kFp8Module + ".weight_scale_inv").name = kFp8Module + ".weight_scale"; },
       malformed, "the scale of the FP8 weight is missing", "tensor-missing"},
      {"scales that neither multiply nor divide", Fp8Divided,
       [](T t) { t.config["quantization_config"]["weight_scale_semantics"] = "magic"; },
       unsupported, "weight_scale_semantics: unknown keyword (found \"magic\"",
       "config-keyword-unknown"},
      {"an unknown form of scales", Fp8Blocks,
       [](T t) { t.config["quantization_config"]["scale_fmt"] = "log"; }, unsupported,
       "scale_fmt: unknown keyword (found \"log\"", "config-keyword-unknown"},
      {"rules that are none", Fp8Divided,
       [](T t) {
         t.config["quantization_config"]["dynamic"] = {{".*", 7}};
       },
       malformed, "dynamic..*: the field has the wrong type (found 7, expected an object)",
       "config-field-invalid"},
      {"a rule for another type", Fp8Divided,
       [](T t) {
         t.config["quantization_config"]["dynamic"] = {{".*", {{"format", "float8_e5m2"}}}};
       },
       unsupported, "prepack reads only E4M3 weights", "scheme-unsupported"},
      {"a rule that does not compile", Fp8Divided,
       [](T t) {
         t.config["quantization_config"]["dynamic"] = {{"(", Json::object()}};
       },
       malformed, "dynamic.(", "config-pattern-invalid"},
      {"bytes for scales, and nothing says exponents", Fp8Blocks,
       [](T t) {
         t.At(kFp8Module + ".weight_scale_inv").dtype = "U8";
         t.At(kFp8Module + ".weight_scale_inv").bytes.resize(4);
       },
       malformed, "the scales have the wrong dtype (found U8", "tensor-dtype"},
      {"an exponent that is NaN", Fp8Blocks,
       [](T t) {
         t.At(kFp8Module + ".weight_scale_inv").dtype = "F8_E8M0";
         t.At(kFp8Module + ".weight_scale_inv").bytes = Hex("7f 7f 7f ff");
       },
       malformed, "the scale of channel 2, group 1 is not a finite number (found NaN)",
       "scale-not-finite"},
      {"a third name for a scale", Fp8Blocks,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".scale", "BF16", {1}, Hex("00 40")});
       },
       malformed, "the module has both scale and weight_scale_inv", "weight-twice"},
      {"two scales of activations", Fp8Static,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".activation_scale", "BF16", {1}, Hex("00 40")});
       },
       malformed, "the module has both input_scale and activation_scale", "weight-twice"},
      {"a Conv1D with its inputs first", Fp8Blocks, MakeConv1d, unsupported,
       "h.0.mlp.c_fc.weight: the weight of a Conv1D is quantized as the model stores it, [K, N]",
       "storage-unsupported"},
      {"stacked experts", Fp8Blocks,
       [](T t) {
         t.At(kFp8Module + ".weight").shape = {1, 3, 5};
       },
       unsupported, "stacked FP8 weights are not supported yet (found [1, 3, 5]",
       "storage-unsupported"},
      {"an embedding", Fp8Blocks,
       [](T t) {
         t.At(kFp8Module + ".weight").name = "model.embed_tokens.weight";
         t.At(kFp8Module + ".weight_scale_inv").name = "model.embed_tokens.weight_scale_inv";
       },
       unsupported,
       "model.embed_tokens: quantized embeddings are not supported (found F8_E4M3 [3, 5]",
       "embedding-quantized"},
      {"an embedding of another name", Fp8Blocks,
       [](T t) { t.config["quantization_config"]["modules_to_convert"] = {"mlp.up_proj"}; },
       unsupported, "mlp.up_proj: quantized embeddings are not supported", "embedding-quantized"},
      {"embeddings that are no list", Fp8Blocks,
       [](T t) { t.config["quantization_config"]["modules_to_convert"] = "wte"; }, malformed,
       "modules_to_convert: the field has the wrong type", "config-field-invalid"},
      {"no static scale", Fp8Static, [](T t) { t.Remove(kFp8Module + ".input_scale"); }, malformed,
       "input_scale is missing", "input-missing"},
  };
  for (const Defect& defect : defects) {
    INFO(defect.name);
    TestCheckpoint stored = defect.good();
    RequireOk(ReadEverything(stored));
    defect.break_it(stored);
    const Status status = ReadEverything(stored);
    CheckError(status, defect.kind, defect.text);
    CHECK(status.id() == defect.id);
  }
}

TEST_CASE("copies of the FP8 config that disagree are refused") {
  const auto read = [](void (*change)(Json & copy)) {
    TestCheckpoint stored = Fp8Blocks();
    Json copy = stored.config["quantization_config"];
    change(copy);
    stored.config["text_config"] = {{"quantization_config", copy}};
    return ReadEverything(stored);
  };
  RequireOk(read([](Json&) {}));
  RequireOk(read([](Json& copy) { copy["ignored_layers"] = {"lm_head"}; }));
  Status status = read([](Json& copy) { copy["weight_block_size"] = {4, 4}; });
  CheckError(status, ErrorKind::kMalformed,
             "text_config.quantization_config.weight_block_size: two copies of the quantization "
             "config disagree (found [4, 4], expected [2, 4], as config.json: quantization_config");
  CHECK(status.id() == "config-conflict");
  status = read([](Json& copy) { copy.erase("weight_block_size"); });
  CheckError(status, ErrorKind::kMalformed, "found absent, expected [2, 4]");
  status = read([](Json& copy) { copy["activation_scheme"] = "static"; });
  CheckError(status, ErrorKind::kMalformed,
             "activation_scheme: two copies of the quantization "
             "config disagree (found static, expected dynamic");
  CHECK(status.id() == "config-conflict");
  status = read([](Json& copy) { copy["weight_scale_semantics"] = "inverse"; });
  CheckError(status, ErrorKind::kMalformed, "weight_scale_semantics: two copies");
  status = read([](Json& copy) { copy["scale_fmt"] = "ue8m0"; });
  CheckError(status, ErrorKind::kMalformed, "scale_fmt: two copies");
  status = read([](Json& copy) { copy["dynamic"] = {{".*", {{"weight_block_size", {4, 4}}}}}; });
  CheckError(status, ErrorKind::kMalformed,
             "dynamic: two copies of the quantization config disagree (found \".*\" with block "
             "[4, 4], expected no rules");
  status = read([](Json& copy) { copy["fmt"] = "e5m2"; });
  CHECK(status.id() == "scheme-unsupported");
}

TEST_CASE("a module that the config excludes and that is FP8 all the same is a finding") {
  TestCheckpoint stored = Fp8Blocks();
  stored.config["quantization_config"]["modules_to_not_convert"] = {kFp8Module};
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "module-ignored-but-quantized");
  CHECK(opened.model.findings[0].where == kFp8Module);
}

}  // namespace
}  // namespace prepack::testing
