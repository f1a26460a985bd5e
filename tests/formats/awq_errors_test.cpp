// What an AWQ checkpoint can have wrong, and how it is told.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/awq_example.h"
#include "formats/defects.h"

namespace prepack::testing {
namespace {

AwqNumbers AwqNumbersOf(bool symmetric = false) {
  SplitMix64 random(21);
  return RandomAwqNumbers(16, 128, 64, random, symmetric);
}

TestCheckpoint Gemm() {
  return AwqCheckpoint(AwqGemmTensors(kAwqModule, AwqNumbersOf()), "gemm", 64);
}
TestCheckpoint SymmetricGemm() {
  return AwqCheckpoint(AwqGemmTensors(kAwqModule, AwqNumbersOf(true)), "gemm", 64, false);
}
TestCheckpoint Gemv() {
  return AwqCheckpoint(AwqGemvTensors(kAwqModule, AwqNumbersOf()), "gemv", 64);
}
TestCheckpoint GemvFast() {
  return AwqCheckpoint(AwqGemvFastTensors(kAwqModule, AwqNumbersOf()), "gemv_fast", 64);
}

using Stored = TestCheckpoint&;

Json& AwqConfigOf(Stored stored) {
  return stored.config["quantization_config"];
}
TestTensor& AwqPart(Stored stored, const std::string& suffix) {
  return stored.At(kAwqModule + "." + suffix);
}
void RemoveAwqPart(Stored stored, const std::string& suffix) {
  stored.Remove(kAwqModule + "." + suffix);
}
// Gives a tensor another shape, and bytes to go with it.
void Reshape(Stored stored, const std::string& suffix, const std::vector<uint64_t>& shape,
             size_t bytes) {
  AwqPart(stored, suffix).shape = shape;
  AwqPart(stored, suffix).bytes.resize(bytes);
}
void PutHalf(Stored stored, const std::string& suffix, size_t index, uint16_t bits) {
  std::vector<std::byte>& bytes = AwqPart(stored, suffix).bytes;
  bytes.at(2 * index) = static_cast<std::byte>(bits & 0xFFU);
  bytes.at(2 * index + 1) = static_cast<std::byte>(bits >> 8);
}

TEST_CASE("AWQ configs that cannot be believed or read are refused") {
  CheckDefects({
      {"eight bits", Gemm, [](Stored t) { AwqConfigOf(t)["bits"] = 8; }, kUnsupported, "awq-bits",
       "config.json: quantization_config.bits: AWQ is defined for 4 bits (found 8, expected 4)"},
      {"bits as text", Gemm, [](Stored t) { AwqConfigOf(t)["bits"] = "4"; }, kMalformed,
       "config-field-invalid", "the field has the wrong type"},
      {"two widths", Gemm, [](Stored t) { AwqConfigOf(t)["w_bit"] = 3; }, kMalformed,
       "config-conflict", "two names of one value disagree (found 3, expected 4)"},
      {"two group sizes", Gemm, [](Stored t) { AwqConfigOf(t)["q_group_size"] = 128; }, kMalformed,
       "config-conflict", "two names of one value disagree (found 128, expected 64)"},
      {"group size 0", Gemm, [](Stored t) { AwqConfigOf(t)["group_size"] = 0; }, kMalformed,
       "config-field-invalid", "the group size is not positive (found 0"},
      {"sym against zero_point", Gemm, [](Stored t) { AwqConfigOf(t)["sym"] = true; }, kMalformed,
       "config-conflict", "sym and zero_point contradict each other (found both are true"},
      {"words of 16 bits", Gemm, [](Stored t) { AwqConfigOf(t)["pack_dtype"] = "int16"; },
       kUnsupported, "pack-dtype", "prepack reads only words of 32 bits (found \"int16\""},
      {"an unknown order of nibbles", Gemm,
       [](Stored t) { AwqConfigOf(t)["pack_method"] = "sorted"; }, kUnsupported,
       "storage-unsupported",
       "pack_method: unknown order of nibbles (found \"sorted\", expected \"reorder\" or "
       "\"order\""},
      {"Quark's order of another layout", Gemv,
       [](Stored t) { AwqConfigOf(t)["pack_method"] = "order"; }, kMalformed, "awq-layout",
       "pack_method is a key of Quark, which writes the gemm layout only (found gemv"},
      {"a rotation", Gemm, [](Stored t) { AwqConfigOf(t)["rotation"] = "hadamard"; }, kUnsupported,
       "rotation", "rotated weights need the same rotation"},
      {"the tensors of an adapter", Gemm,
       [](Stored t) {
         t.tensors.push_back({kAwqModule + ".lora_B", "F16", {2, 1}, std::vector<std::byte>(4)});
       },
       kUnsupported, "adapter-unsupported",
       ".lora_B: low-rank adapters are not supported (found [2, 1])"},
      {"an adapter", Gemm,
       [](Stored t) {
         AwqConfigOf(t)["adapter"] = {{"path", "x"}};
       },
       kUnsupported, "adapter-unsupported", "adapter: low-rank adapters are not supported"},
      {"exclusions that are no list", Gemm,
       [](Stored t) { AwqConfigOf(t)["modules_to_not_convert"] = "lm_head"; }, kMalformed,
       "config-field-invalid", "modules_to_not_convert: the field has the wrong type"},
      {"exclusions that are no names", Gemm,
       [](Stored t) { AwqConfigOf(t)["modules_to_not_convert"] = {1}; }, kMalformed,
       "config-field-invalid", "modules_to_not_convert: the field has the wrong type"},
  });
}

TEST_CASE("AWQ tensors that are missing, doubled or of another kind are refused") {
  CheckDefects({
      {"no scales", Gemm, [](Stored t) { RemoveAwqPart(t, "scales"); }, kMalformed,
       "tensor-missing", "scales of the module are missing"},
      {"no qzeros", Gemm, [](Stored t) { RemoveAwqPart(t, "qzeros"); }, kMalformed,
       "tensor-missing", "zero_point is true, but qzeros of the module is missing"},
      {"no qweight", Gemm, [](Stored t) { RemoveAwqPart(t, "qweight"); }, kMalformed,
       "tensor-orphan", "qzeros: qweight of the module is missing"},
      {"a weight, too", Gemm,
       [](Stored t) {
         AddZeros(t, kAwqModule + ".weight", "F16", {16, 128}, 4096);
       },
       kMalformed, "weight-twice", "the module has both a weight and a qweight"},
      {"scaled activation", Gemm,
       [](Stored t) { AddZeros(t, "model.layers.0.mlp.act.scales", "F16", {128}, 256); },
       kUnsupported, "awq-scaled-activation", "model.layers.0.mlp.act.scales: activation scaling"},
      {"an index of groups", Gemm,
       [](Stored t) { AddZeros(t, kAwqModule + ".g_idx", "I32", {128}, 512); }, kMalformed,
       "awq-layout", "AWQ modules have no group index"},
      {"stacked experts", Gemm,
       [](Stored t) {
         AwqPart(t, "qweight").shape = {1, 128, 2};
       },
       kUnsupported, "awq-rank",
       "prepack reads only matrices here, not stacked experts (found [1, 128, 2]"},
      {"an embedding", Gemm,
       [](Stored t) {
         for (TestTensor& tensor : t.tensors) {
           const size_t dot = tensor.name.rfind('.');
           if (tensor.name.starts_with(kAwqModule)) {
             tensor.name = "model.embed_tokens" + tensor.name.substr(dot);
           }
         }
       },
       kUnsupported, "embedding-quantized", "quantized embeddings are not supported"},
      {"codes in floating point", Gemm, [](Stored t) { AwqPart(t, "qweight").dtype = "F32"; },
       kMalformed, "tensor-dtype",
       "packed codes have the wrong dtype (found F32, expected I32 or I16)"},
      {"a name that Quark gave", Gemm,
       [](Stored t) {
         AddZeros(t, "lm_head.qweight", "BF16", {16, 128}, 4096);
       },
       kMalformed, "tensor-dtype",
       "lm_head.qweight: a weight in floating point is called qweight (found BF16, 1 in all, "
       "expected qweight for packed codes only). AMD Quark names them so"},
      {"scales in integers", Gemm, [](Stored t) { AwqPart(t, "scales").dtype = "I16"; }, kMalformed,
       "tensor-dtype", "scales have the wrong dtype (found I16"},
      {"nothing quantized", Gemm,
       [](Stored t) {
         for (const char* suffix : {"qweight", "qzeros", "scales"}) RemoveAwqPart(t, suffix);
       },
       kMalformed, "nothing-quantized", "no tensor is one"},
      {"empty", Gemm,
       [](Stored t) {
         Reshape(t, "qweight", {0, 2}, 0);
         Reshape(t, "qzeros", {0, 2}, 0);
         Reshape(t, "scales", {0, 16}, 0);
       },
       kMalformed, "tensor-shape", "the weight is empty"},
  });
}

TEST_CASE("AWQ shapes that contradict each other, the config or the format are refused") {
  CheckDefects({
      {"no layout", Gemm,
       [](Stored t) {
         Reshape(t, "qzeros", {3, 2}, 24);
       },
       kMalformed, "awq-layout",
       "fit none of AWQ's layouts (found model.layers.0.mlp.up_proj: qweight I32 [128, 2], qzeros "
       "I32 [3, 2], scales F16 [2, 16]"},
      {"channels that fill no words", Gemm,
       [](Stored t) {
         Reshape(t, "scales", {2, 15}, 60);
       },
       kMalformed, "awq-layout", "fit none of AWQ's layouts"},
      {"marlin", Gemm,
       [](Stored t) {
         RemoveAwqPart(t, "qzeros");
         AwqConfigOf(t)["zero_point"] = false;
         Reshape(t, "qweight", {8, 32}, 1024);
       },
       kUnsupported, "awq-marlin", "the module holds AWQ-Marlin GPU tiles (found [8, 32])"},
      {"GPTQ", Gemm,
       [](Stored t) {
         Reshape(t, "qweight", {16, 16}, 1024);
       },
       kMalformed, "awq-gptq-packing",
       "qweight is [K/8, N]: this is GPTQ packing, but the config declares AWQ"},
      {"another group size", Gemm, [](Stored t) { AwqConfigOf(t)["group_size"] = 32; }, kMalformed,
       "group-size-mismatch",
       "(found 2 scale groups, which for K = 128 mean group_size 64, expected group_size 32, as "
       "config.json: quantization_config says)"},
      {"a short last group", Gemm, [](Stored t) { AwqConfigOf(t)["group_size"] = 96; }, kMalformed,
       "group-size-mismatch",
       "K is not a multiple of the group size (found K = 128, group size 96)"},
      {"another group size, gemv", Gemv, [](Stored t) { AwqConfigOf(t)["group_size"] = 32; },
       kMalformed, "group-size-mismatch",
       "16 (padded) scale groups, which for K = 128 mean group_size 64"},
      {"a group size that gemv has not", Gemv, [](Stored t) { AwqConfigOf(t)["group_size"] = 16; },
       kMalformed, "group-size-mismatch", "expected group_size 16"},
      {"a short last group, gemv", Gemv,
       [](Stored t) {
         Reshape(t, "qweight", {16, 12}, 768);
       },
       kMalformed, "group-size-mismatch",
       "K is not a multiple of the group size (found K = 96, group size 64)"},
      {"K that gemv_fast has not", GemvFast,
       [](Stored t) {
         Reshape(t, "qweight", {4, 96}, 768);
       },
       kMalformed, "tensor-shape", "interleaves 64 input channels"},
  });
}

TEST_CASE("AWQ numbers that are broken are refused") {
  CheckDefects({
      {"NaN", Gemm, [](Stored t) { PutHalf(t, "scales", 16 + 3, 0x7E00); }, kMalformed,
       "scale-not-finite", "the scale of channel 3, group 1 is not a finite number (found NaN)"},
      {"infinity, gemv", Gemv, [](Stored t) { PutHalf(t, "scales", 16 * 5 + 1, 0x7C00); },
       kMalformed, "scale-not-finite",
       "the scale of channel 5, group 1 is not a finite number (found infinity)"},
      {"zero scale", Gemm, [](Stored t) { PutHalf(t, "scales", 2, 0); }, kMalformed, "scale-zero",
       "the scale of channel 2, group 0 is zero, but the group has weights"},
      {"symmetric with other zero points", SymmetricGemm,
       [](Stored t) { AwqPart(t, "qzeros").bytes[1] = std::byte{0x83}; }, kMalformed,
       "zero-point-not-symmetric",
       "the config says that zero points are symmetric, but they are not all 8 (found 3 at channel "
       "4, "
       "group 0; 3 to 8 in these rows"},
      {"padding scales of gemv", Gemv, [](Stored t) { PutHalf(t, "scales", 16 * 2 + 7, 0x3C00); },
       kMalformed, "awq-padding",
       "the padding after the last group holds data (found channel 2, group 7"},
      {"padding zero points of gemv", Gemv,
       [](Stored t) { AwqPart(t, "qzeros").bytes[8 * 4 + 1] = std::byte{0x10}; }, kMalformed,
       "awq-padding",
       "qzeros: the padding after the last group holds data (found channel 4, group 3"},
      {"padding scales of gemv_fast", GemvFast,
       [](Stored t) { PutHalf(t, "scales", 16 * 2 + 9, 0x3C00); }, kMalformed, "awq-padding",
       "(found channel 9, group 2"},
      {"padding offsets of gemv_fast", GemvFast,
       [](Stored t) { PutHalf(t, "qzeros", 16 * 15 + 1, 0xBC00); }, kMalformed, "awq-padding",
       "(found channel 1, group 15"},
      {"an offset between two zero points", GemvFast,
       [](Stored t) {
         PutHalf(t, "scales", 16 + 1, 0x3C00);  // 1
         PutHalf(t, "qzeros", 16 + 1, 0xC100);  // −2.5
       },
       kUnsupported, "awq-offset-not-integer",
       "(found offset -2.5 with scale 1, a zero point of 2.5, at channel 1, group 1"},
      {"an offset beyond 4 bits", GemvFast,
       [](Stored t) {
         PutHalf(t, "scales", 0, 0x3C00);
         PutHalf(t, "qzeros", 0, 0xCC00);  // −16
       },
       kUnsupported, "awq-offset-not-integer", "a zero point of 16, at channel 0, group 0"},
      {"an offset below 4 bits", GemvFast,
       [](Stored t) {
         PutHalf(t, "scales", 0, 0x3C00);
         PutHalf(t, "qzeros", 0, 0x3C00);
       },
       kUnsupported, "awq-offset-not-integer", "a zero point of -1, at channel 0, group 0"},
      {"an offset that is no number", GemvFast, [](Stored t) { PutHalf(t, "qzeros", 3, 0x7E00); },
       kUnsupported, "awq-offset-not-integer", "at channel 3, group 0"},
  });
}

TEST_CASE("a rounded offset is still its zero point, and zero scales have none") {
  TestCheckpoint stored = GemvFast();
  PutHalf(stored, "scales", 4, 0x2E67);  // 0.1000366
  PutHalf(stored, "qzeros", 4, 0xBE00);  // −1.5 = −15 · 0.1, rounded
  // A scale of zero is fine where its group has no weights: codes and offset 0.
  PutHalf(stored, "scales", 0, 0);
  PutHalf(stored, "qzeros", 0, 0x8000);  // −0
  std::vector<std::byte>& codes = AwqPart(stored, "qweight").bytes;
  std::fill(codes.begin(), codes.begin() + 32, std::byte{0});
  RequireOk(ReadEverything(stored));
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const std::vector<uint8_t> zero_points = ZeroPoints(opened.Module(kAwqModule), 0, 5);
  CHECK(zero_points[0] == 0);
  CHECK(zero_points[4 * 2] == 15);
}

TEST_CASE("copies of an AWQ config must say the same") {
  const auto read = [](const std::string& file, const Json& copy) {
    TestCheckpoint stored = Gemm();
    const TempFolder folder;
    stored.Write(folder.path());
    std::ofstream(folder.path() / file) << copy.dump();
    return OpenModel(folder.path()).status();
  };
  RequireOk(read("quant_config.json",
                 {{"w_bit", 4}, {"q_group_size", 64}, {"zero_point", true}, {"version", "GEMM"}}));
  const Status size = read("quant_config.json", {{"w_bit", 4}, {"q_group_size", 128}});
  CheckError(size, kMalformed,
             "quant_config.json.group_size: two copies of the quantization config disagree (found "
             "128, expected 64, as config.json: quantization_config says)");
  CHECK(size.id() == "config-conflict");
  CheckError(read("quantize_config.json", {{"quant_method", "awq"}, {"bits", 8}}), kMalformed,
             "(found 8, expected 4");
  CheckError(read("quant_config.json", {{"w_bit", 4}, {"zero_point", false}}), kMalformed,
             "(found false, expected true");
  CheckError(read("quant_config.json", {{"w_bit", 4}, {"version", "gemv"}}), kMalformed,
             "(found gemv, expected gemm");
  CheckError(read("quant_config.json", {{"w_bit", 4}, {"pack_method", "order"}}), kMalformed,
             "quant_config.json.pack_method: two copies of the quantization config disagree (found "
             "order, expected ");
}

TEST_CASE("one bad AWQ module does not hide the others from a report") {
  TestCheckpoint stored = Gemm();
  for (const TestTensor& tensor : AwqGemmTensors("model.layers.0.mlp.gate_proj", AwqNumbersOf())) {
    if (!tensor.name.ends_with("scales")) stored.tensors.push_back(tensor);
  }
  const TempFolder folder;
  stored.Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  REQUIRE(checkpoint.ok());
  const Result<QuantizedModel> model = ExamineQuantizedModel(*checkpoint);
  RequireOk(model.status());
  CHECK(model->modules.size() == 1);
  REQUIRE(model->errors.size() == 1);
  CheckError(model->errors[0], kMalformed, "gate_proj.qweight: scales of the module are missing");
}

}  // namespace
}  // namespace prepack::testing
