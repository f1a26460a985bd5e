// What an AutoRound checkpoint can have wrong or be instead, and how it is told.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "formats/auto_round_example.h"
#include "formats/defects.h"
#include "formats/gptq_example.h"

namespace prepack::testing {
namespace {

using Stored = TestCheckpoint&;

// Asymmetric, in the tensors of GPTQ, zero points 1 and more.
TestCheckpoint Asymmetric3Bit() {
  GptqExample x;
  x.bits = 3;
  x.k = 32;
  x.group_size = 32;
  x.symmetric = false;
  x.Randomize(5, 1);
  TestCheckpoint stored = MakeGptq(x);
  stored.config = ArCheckpoint({}, "auto_round:auto_gptq", false).config;
  ArConfig(stored)["bits"] = 3;
  return stored;
}

TEST_CASE("AutoRound schemes that are not plain integers are refused by name") {
  CheckDefects({
      {"unknown packing", ArGptq,
       [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:new"; }, kUnsupported,
       "autoround-packing-unknown",
       "packing_format: unknown packing_format (found \"auto_round:new\", expected "
       "auto_round, auto_round:auto_gptq, auto_round:gptqmodel or auto_round:auto_awq)"},
      {"llm_compressor", ArGptq,
       [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:llm_compressor"; }, kUnsupported,
       "autoround-scheme", "stores MXFP or NVFP numbers"},
      {"nvfp4 e5m3", ArGptq,
       [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:llm_compressor_nvfp4_e5m3"; },
       kUnsupported, "autoround-scheme", "stores NVFP4 numbers"},
      {"fp8", ArGptq, [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:fp8"; },
       kUnsupported, "autoround-scheme", "stores FP8 numbers"},
      {"static fp8", ArGptq,
       [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:fp8_static"; }, kUnsupported,
       "autoround-scheme", "stores FP8 numbers with static activations"},
      {"fake", ArGptq, [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:fake"; },
       kUnsupported, "autoround-scheme", "the model is not quantized"},
      {"mlx", ArGptq, [](Stored t) { ArConfig(t)["packing_format"] = "mlx"; }, kUnsupported,
       "autoround-scheme", "stores arrays of Apple's MLX"},
      {"mx_fp", ArGptq, [](Stored t) { ArConfig(t)["data_type"] = "mx_fp"; }, kUnsupported,
       "autoround-scheme",
       "data_type: MXFP weights are not supported (found \"mx_fp\", expected \"int\"). Export the "
       "model again with --format llm_compressor"},
      {"mx_int", ArGptq, [](Stored t) { ArConfig(t)["data_type"] = "mx_int"; }, kUnsupported,
       "autoround-scheme", "MXINT weights are not supported"},
      {"nv_fp", ArGptq, [](Stored t) { ArConfig(t)["data_type"] = "nv_fp"; }, kUnsupported,
       "autoround-scheme", "NVFP4 weights are not supported"},
      {"fp8 in blocks, without packing_format", ArGptq,
       [](Stored t) {
         ArConfig(t).erase("packing_format");
         ArConfig(t)["data_type"] = "fp8";
         ArConfig(t)["bits"] = 8;
         ArConfig(t)["group_size"] = {128, 128};
       },
       kUnsupported, "autoround-scheme", "FP8 weights of AutoRound are not supported"},
      {"a layer of another type", ArGptq,
       [](Stored t) {
         ArConfig(t)["extra_config"][kArModule] = {{"bits", 4}, {"data_type", "mx_fp4"}};
       },
       kUnsupported, "autoround-scheme",
       "extra_config[\"model.layers.0.mlp.up_proj\"].data_type: MXFP weights are not supported"},
      {"an unknown type", ArGptq, [](Stored t) { ArConfig(t)["data_type"] = "posit"; },
       kUnsupported, "autoround-scheme", "unknown data type (found \"posit\""},
      {"quantized activations", ArGptq, [](Stored t) { ArConfig(t)["act_bits"] = 8; }, kUnsupported,
       "autoround-activations", "exports with quantized activations are not supported (found 8)"},
      {"quantized activations by tensor", ArGptq,
       [](Stored t) { AddZeros(t, kArModule + ".act_scales", "F16", {1}, 2); }, kUnsupported,
       "autoround-activations", "act_scales: AutoRound exports with quantized activations"},
      {"w_bf16_to_fp8_scale", ArGptq,
       [](Stored t) { AddZeros(t, kArModule + ".w_bf16_to_fp8_scale", "F32", {1}, 4); },
       kUnsupported, "autoround-activations",
       "w_bf16_to_fp8_scale: AutoRound exports with quantized"},
      {"rotation", ArGptq,
       [](Stored t) {
         ArConfig(t)["rotation_config"] = {{"hadamard_type", "random"}};
       },
       kUnsupported, "rotation", "rotation_config: rotated weights need the same rotation"},
      {"spinquant", ArGptq,
       [](Stored t) {
         ArConfig(t)["spinquant_config"] = {{"r1", true}};
       },
       kUnsupported, "rotation", "spinquant_config: rotated weights"},
      {"spinquant tensors", ArGptq,
       [](Stored t) { AddZeros(t, "model.layers.0.mlp.spinquant_r4", "F16", {1}, 2); },
       kUnsupported, "rotation", "spinquant_r4: rotated weights"},
      {"super bits", ArGptq, [](Stored t) { ArConfig(t)["super_bits"] = 6; }, kUnsupported,
       "autoround-scheme", "super_bits: double-quantized scales (GGUF schemes) are not supported"},
      {"double quantization by type", ArGptq,
       [](Stored t) { ArConfig(t)["data_type"] = "int_asym_dq"; }, kUnsupported, "autoround-scheme",
       "double-quantized scales (GGUF schemes) are not supported (found \"int_asym_dq\""},
      {"weights of another kind", ArGptq,
       [](Stored t) { AddZeros(t, "model.layers.0.mlp.gate_proj.weight_packed", "U8", {1}, 1); },
       kUnsupported, "autoround-scheme", "weight_packed: the weights are not plain integers"},
      {"MLX tensors", ArGptq,
       [](Stored t) { AddZeros(t, "model.layers.0.mlp.gate_proj.biases", "F16", {1}, 2); },
       kUnsupported, "autoround-scheme", "biases: the weights are not plain integers"},
  });
}

TEST_CASE("AutoRound configs and tensors that contradict each other are malformed") {
  CheckDefects({
      {"AWQ label on GPTQ tensors", ArGptq,
       [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:auto_awq"; }, kMalformed,
       "autoround-packing-mismatch",
       "the tensors are GPTQ-packed, but packing_format says otherwise (found qweight [4, 32], "
       "scales [1, 32], expected packing_format \"auto_round:auto_awq\""},
      {"GPTQ label on AWQ tensors", ArAwq,
       [](Stored t) { ArConfig(t)["packing_format"] = "auto_round:auto_gptq"; }, kMalformed,
       "autoround-packing-mismatch",
       "the tensors are AWQ-packed, but packing_format says otherwise"},
      {"AWQ in 8 bits", ArAwq, [](Stored t) { ArConfig(t)["bits"] = 8; }, kUnsupported, "awq-bits",
       "AWQ is defined for 4 bits (found 8 bits"},
      {"symmetric with other zero points", ArAwq,
       [](Stored t) { t.At(kArModule + ".qzeros").bytes[0] = std::byte{0x98}; }, kMalformed,
       "zero-point-not-symmetric", "zero points are symmetric, but they are not all 8"},
      {"symmetric in GPTQ tensors, with other zero points", ArGptq,
       [](Stored t) { t.At(kArModule + ".qzeros").bytes[5] = std::byte{0x78}; }, kMalformed,
       "zero-point-not-symmetric", "its zero points vary (found 8 at channel 10, group 0; 7 to 8"},
      {"symmetric, and the first zero point is neither constant", ArGptq,
       [](Stored t) { t.At(kArModule + ".qzeros").bytes[0] = std::byte{0x75}; }, kMalformed,
       "zero-point-not-symmetric", "(found 5 at channel 0, group 0, expected 7 or 8)"},
      {"zero points of 3 bits that are lost", Asymmetric3Bit,
       [](Stored t) { t.At(kArModule + ".qzeros").bytes[0] |= std::byte{7}; }, kMalformed,
       "gptq-zero-lost", "(found field 7 at channel 0, group 0"},
      {"zero scale in GPTQ tensors", ArGptq,
       [](Stored t) {
         t.At(kArModule + ".scales").bytes[2] = std::byte{0};
         t.At(kArModule + ".scales").bytes[3] = std::byte{0};
       },
       kMalformed, "scale-zero", "the scale of channel 1, group 0 is zero"},
      {"a width that is not read, nor that of the tensors", ArGptq,
       [](Stored t) {
         ArConfig(t)["bits"] = 5;
         t.At(kArModule + ".scales").shape = {3, 32};
         t.At(kArModule + ".scales").bytes.resize(192);
       },
       kUnsupported, "", "codes of this width are not supported (found 5 bits"},
      {"NaN", ArAwq, [](Stored t) { t.At(kArModule + ".scales").bytes[3] = std::byte{0x7E}; },
       kMalformed, "scale-not-finite", "the scale of channel 1, group 0 is not a finite number"},
      {"bits out of range", ArGptq, [](Stored t) { ArConfig(t)["bits"] = 12; }, kMalformed,
       "config-field-invalid", "bits: the value has the wrong type or is out of range (found 12"},
      {"bits of a layer", ArGptq,
       [](Stored t) {
         ArConfig(t)["extra_config"][kArModule] = {{"bits", 1}};
       },
       kMalformed, "config-field-invalid", "extra_config[\"model.layers.0.mlp.up_proj\"].bits"},
      {"group size", ArGptq, [](Stored t) { ArConfig(t)["group_size"] = 0; }, kMalformed,
       "config-field-invalid",
       "group_size: the value has the wrong type or is out of range (found 0"},
      {"blocks", ArGptq, [](Stored t) { ArConfig(t)["block_name_to_quantize"] = {1}; }, kMalformed,
       "config-field-invalid", "block_name_to_quantize"},
      {"extra_config as a list", ArGptq, [](Stored t) { ArConfig(t)["extra_config"] = {1}; },
       kMalformed, "config-field-invalid", "extra_config: the field has the wrong type"},
      {"no qweight", ArGptq, [](Stored t) { t.Remove(kArModule + ".qweight"); }, kMalformed,
       "tensor-orphan", "qzeros: qweight of the module is missing"},
      {"nothing quantized", ArGptq,
       [](Stored t) {
         for (const char* suffix : {".qweight", ".qzeros", ".scales"}) t.Remove(kArModule + suffix);
       },
       kMalformed, "nothing-quantized", "no tensor is one"},
  });
}

TEST_CASE("the copy of an AutoRound config must say the same") {
  const auto read = [](const Json& change) {
    TestCheckpoint stored = ArGptq();
    Json copy = ArConfig(stored);
    for (const auto& [key, value] : change.items()) copy[key] = value;
    const TempFolder folder;
    stored.Write(folder.path());
    std::ofstream(folder.path() / "quantization_config.json") << copy.dump();
    return OpenModel(folder.path()).status();
  };
  RequireOk(read(Json::object()));
  const Status bits = read({{"bits", 8}});
  CheckError(bits, kMalformed,
             "quantization_config.json.bits: two copies of the quantization config disagree (found "
             "8, expected 4, as config.json: quantization_config says)");
  CHECK(bits.id() == "config-conflict");
  CheckError(read({{"sym", false}}), kMalformed, "(found false, expected true");
  CheckError(read({{"packing_format", "auto_round"}}), kMalformed,
             "(found auto_round, expected auto_round:auto_gptq");
  CheckError(read({{"group_size", 64}}), kMalformed, "(found 64, expected 32");
  CheckError(read({{"extra_config", {{"a", {{"bits", 8}}}}}}), kMalformed,
             "(found a: bits 8 group_size inherited sym inherited data_type inherited, expected no "
             "such entry");
}

TEST_CASE("copies of an AutoRound config may list their entries in any order") {
  const auto read = [](const Json& ours, const Json& theirs) {
    TestCheckpoint stored = ArGptq();
    Json copy = ArConfig(stored);
    ArConfig(stored)["extra_config"] = ours;
    copy["extra_config"] = theirs;
    const TempFolder folder;
    stored.Write(folder.path());
    std::ofstream(folder.path() / "quantization_config.json") << copy.dump();
    return OpenModel(folder.path()).status();
  };
  const Json eight = {{"bits", 8}, {"sym", false}};
  const Json reversed = {{"sym", false}, {"bits", 8}};
  const Json sixteen = {{"bits", 16}};
  RequireOk(read({{"x.10", eight}, {"x.2", sixteen}, {"x.3", eight}},
                 {{"x.2", sixteen}, {"x.3", reversed}, {"x.10", eight}}));
  const auto conflict = [&](const Json& ours, const Json& theirs, const std::string& text) {
    const Status status = read(ours, theirs);
    CheckError(status, kMalformed, text);
    CHECK(status.id() == "config-conflict");
  };
  conflict({{"x.10", eight}, {"x.2", sixteen}}, {{"x.2", eight}, {"x.10", eight}},
           "(found x.2: bits 8 group_size inherited sym false data_type inherited, expected x.2: "
           "bits 16 group_size inherited");
  conflict({{"x.10", eight}, {"x.2", sixteen}}, {{"x.2", sixteen}},
           "(found no such entry, expected x.10: bits 8");
  conflict({{"x.2", sixteen}}, {{"x.2", sixteen}, {"x.3", {{"group_size", 64}}}},
           "(found x.3: bits inherited group_size 64");
  // Layers that stay as they are need not stand in every copy.
  RequireOk(read({{"x.10", eight}, {"x.2", sixteen}}, {{"x.10", eight}}));
  RequireOk(read({{"x.10", eight}}, {{"x.2", sixteen}, {"x.10", eight}}));
}

}  // namespace
}  // namespace prepack::testing
