// DeepSeek V4, whose experts are FP4, and MXFP8 of MiniMax M3.

#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/fp4_example.h"
#include "formats/truth.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

TEST_CASE("MXFP8 of MiniMax: the config need not say the block, and scales have either type") {
  for (const std::string dtype : {"U8", "F8_E8M0"}) {
    for (const std::string name : {".weight_scale", ".weight_scale_inv"}) {
      TestCheckpoint stored = MinimaxMxfp8();
      stored.At(kFp8Module + ".weight_scale_inv").dtype = dtype;
      stored.At(kFp8Module + ".weight_scale_inv").name = kFp8Module + name;
      if (name == ".weight_scale") {
        stored.config["quantization_config"].erase("weight_block_size");
        stored.config["quantization_config"].erase("scale_fmt");
      }
      const TempFolder folder;
      stored.Write(folder.path());
      const OpenedModel opened = MustOpen(folder.path());
      CHECK(opened.model.findings.empty());
      const QuantizedLinear& linear = opened.Module(kFp8Module);
      CHECK(DescribeScheme(linear.scheme()) == "wfp8afp8 group 32");
      CHECK(DescribeActivations(linear.scheme().activations) ==
            "8-bit float per group of 32 dynamic");
      CHECK(Scales(linear, 0, 2) == std::vector<float>{1, 2, 0.5F, 4});
    }
  }
}

TEST_CASE("stacked experts in MXFP8 of MiniMax") {
  TestCheckpoint stored = MinimaxMxfp8();
  const std::string experts = "model.layers.0.block_sparse_moe.experts";
  stored.tensors = {
      {experts + ".gate_up_proj", "F8_E4M3", {2, 2, 32}, std::vector(128, std::byte{0x38})},
      {experts + ".gate_up_proj_scale_inv", "U8", {2, 2, 1}, Hex("7f 80 81 82")},
      {"model.norm.weight", "BF16", {1}, Hex("80 3f")}};
  stored.config["hidden_size"] = 32;
  {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(Scales(opened.Module(experts + ".gate_up_proj.1"), 0, 2) == std::vector<float>{4, 8});
    CHECK(Dequantize(opened.Module(experts + ".gate_up_proj.1"), 1, 1) ==
          std::vector<float>(32, 8));
  }
  stored.tensors[0].shape = {2, 32, 2};
  const Status refused = ReadEverything(stored);
  CHECK(refused.id() == "storage-unsupported");
  CHECK(refused.what() == "transposed MXFP8 experts are not supported");
}

TEST_CASE("DeepSeek V4: FP4 experts beside FP8 modules, under names without model.") {
  for (const bool in_declaration : {false, true}) {  // as V4 and as V4.1 have the key
    TestCheckpoint stored = DeepSeekV4();
    if (in_declaration) {
      stored.config.erase("expert_dtype");
      stored.config["quantization_config"]["expert_dtype"] = "fp4";
    }
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(opened.model.findings.empty());
    CHECK(opened.model.modules.size() == 2);
    const QuantizedLinear& expert = opened.Module(kDeepSeekExpert);
    CHECK(DescribeScheme(expert.scheme()) == "wfp4afp8 group 32");
    CHECK(DescribeActivations(expert.scheme().activations) ==
          "8-bit float per group of 128 dynamic");
    CHECK(Codes(expert) == Fp4Codes());
    CHECK(Dequantize(expert, 0, 1) ==
          std::vector<float>{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6,
                             0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6});
    CHECK(Dequantize(expert, 1, 1) == std::vector<float>(32, 2));
    CHECK(DescribeScheme(opened.Module(kDeepSeekShared).scheme()) == "wfp8afp8 block 128x128");
    CHECK(Dequantize(opened.Module(kDeepSeekShared), 1, 1) == std::vector<float>(32, 2));
  }
}

TEST_CASE("exponents beside bytes are enough for FP4, and expert_dtype must not deny them") {
  TestCheckpoint stored = DeepSeekV4();
  stored.config.erase("expert_dtype");
  RequireOk(ReadEverything(stored));
  stored.At(kDeepSeekExpert + ".weight").dtype = "U8";
  stored.At(kDeepSeekExpert + ".scale").dtype = "U8";
  RequireOk(ReadEverything(stored));
  stored.config["quantization_config"]["ignored_layers"] = {kDeepSeekExpert};
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "module-ignored-but-quantized");
  CHECK(opened.model.findings[0].message.find("its weight is FP4") != std::string::npos);
}

TEST_CASE("what is wrong with DeepSeek V4 and MXFP8 of MiniMax is said") {
  using T = TestCheckpoint&;
  CheckDefects({
      {"no scale", DeepSeekV4, [](T t) { t.Remove(kDeepSeekExpert + ".scale"); }, kMalformed,
       "tensor-missing",
       "a scale of the FP4 weight is missing (expected " + kDeepSeekExpert + ".scale"},
      {"no FP8 scale", DeepSeekV4, [](T t) { t.Remove(kDeepSeekShared + ".scale"); }, kMalformed,
       "tensor-missing", "the scale of the FP8 weight is missing"},
      {"a scale that is NaN", DeepSeekV4,
       [](T t) { t.At(kDeepSeekExpert + ".scale").bytes[1] = std::byte{255}; }, kMalformed,
       "scale-not-finite", "the scale of channel 1, group 0 is not a finite number (found NaN"},
      {"scales of another shape", DeepSeekV4,
       [](T t) {
         t.At(kDeepSeekExpert + ".scale").shape = {1, 2};
       },
       kMalformed, "tensor-shape", "the shape of the scales contradicts the weight"},
      {"scales in F32", DeepSeekV4,
       [](T t) {
         t.At(kDeepSeekExpert + ".scale").dtype = "F32";
         t.At(kDeepSeekExpert + ".scale").bytes = Floats32({1, 2});
       },
       kUnsupported, "scheme-unsupported",
       "whose scales are not exponents are not supported here (found F32 [2, 1]"},
      {"static activations", DeepSeekV4,
       [](T t) { t.config["quantization_config"]["activation_scheme"] = "static"; }, kUnsupported,
       "scheme-unsupported", "static activations of FP4 weights are not supported"},
      {"experts that should be FP8", DeepSeekV4, [](T t) { t.config["expert_dtype"] = "fp8"; },
       kMalformed, "module-scheme-contradiction",
       "expert_dtype says FP8, but the weight is FP4 (found I8 [2, 16]"},
      {"experts in an unknown type", DeepSeekV4, [](T t) { t.config["expert_dtype"] = "fp6"; },
       kUnsupported, "config-keyword-unknown", "config.json.expert_dtype"},
      {"stacked experts", DeepSeekV4,
       [](T t) {
         t.At(kDeepSeekExpert + ".weight").shape = {1, 2, 16};
       },
       kUnsupported, "storage-unsupported", "stacked FP4 weights are not supported yet"},
      {"no final norm", DeepSeekV4, [](T t) { t.Remove("norm.weight"); }, kMalformed,
       "model-part-missing", "there is no norm after the last one"},
      {"no embedding", DeepSeekV4, [](T t) { t.Remove("embed.weight"); }, kMalformed,
       "model-part-missing", "the model has no embedding"},
      {"an embedding in FP8", DeepSeekV4,
       [](T t) {
         t.At("embed.weight").dtype = "F8_E4M3";
         t.At("embed.weight").bytes.resize(2);
         t.tensors.push_back({"embed.scale", "F8_E8M0", {1, 1}, Hex("7f")});
       },
       kUnsupported, "embedding-quantized", "quantized embeddings are not supported"},
      {"blocks of another size", MinimaxMxfp8,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {32, 32};
       },
       kUnsupported, "scheme-unsupported",
       "MXFP8 with other groups is not supported (found [32, 32], expected [1, 32]"},
      {"scales in F32", MinimaxMxfp8,
       [](T t) {
         t.At(kFp8Module + ".weight_scale_inv").dtype = "F32";
         t.At(kFp8Module + ".weight_scale_inv").bytes = Floats32({1, 1, 1, 1});
       },
       kMalformed, "tensor-dtype", "weight_scale_inv"},
      {"a NaN among the codes", MinimaxMxfp8,
       [](T t) { t.At(kFp8Module + ".weight").bytes[65] = std::byte{0xFF}; }, kMalformed,
       "code-nan", "[1, 1]"},
      {"a scale that is NaN", MinimaxMxfp8,
       [](T t) { t.At(kFp8Module + ".weight_scale_inv").bytes[3] = std::byte{255}; }, kMalformed,
       "scale-not-finite", "the scale of channel 1, group 1 is not a finite number (found NaN"},
      {"scales of blocks", MinimaxMxfp8,
       [](T t) {
         t.At(kFp8Module + ".weight_scale_inv").shape = {1, 4};
       },
       kMalformed, "tensor-shape", "the shape of the scales contradicts the weight"},
      {"two scales", MinimaxMxfp8,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".weight_scale", "U8", {2, 2}, Hex("7f 7f 7f 7f")});
       },
       kMalformed, "weight-twice", "the module has both"},
  });
}

TEST_CASE("DeepSeek V4 dequantizes to the truth, to the bit") {
  const OpenedModel opened = CheckTruth("fp8-deepseek-v4", "fp8", 29, "");
  CHECK(opened.model.findings.empty());
  size_t experts = 0;
  for (const auto& module : opened.model.modules) {
    const bool expert = module->module().find(".experts.") != std::string::npos;
    experts += expert ? 1 : 0;
    CHECK(DescribeScheme(module->scheme()) ==
          (expert ? "wfp4afp8 group 32" : "wfp8afp8 block 128x128"));
  }
  CHECK(experts == 12);
}

}  // namespace
}  // namespace prepack::testing
