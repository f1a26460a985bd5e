// A table of defects, each made from a good checkpoint that reads.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/defects.h"
#include "formats/read_helpers.h"
#include "prepack/base/random.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// SpinQuant's R4: the weights are rotated when they are stored, and what meets them at `location`.
nlohmann::ordered_json RotatedAt(const std::string& location) {
  return {{"config_groups",
           {{"R4",
             {{"type", "hadamard"},
              {"apply",
               {{{"location", "weight_input"}, {"inverse", true}, {"targets", {"Linear"}}},
                {{"location", location}, {"targets", {"Linear"}}}}}}}}}};
}

const std::string kFile = "model.safetensors: tensor " + kExampleModule;

TestTensor& CtPart(TestCheckpoint& stored, const std::string& suffix) {
  return stored.At(kExampleModule + "." + suffix);
}

void AddCtPart(TestCheckpoint& stored, const std::string& suffix, const std::string& dtype,
               const std::vector<uint64_t>& shape, size_t bytes) {
  stored.tensors.push_back(
      {kExampleModule + "." + suffix, dtype, shape, std::vector<std::byte>(bytes)});
}

void RemoveCtPart(TestCheckpoint& stored, const std::string& suffix) {
  stored.Remove(kExampleModule + "." + suffix);
}

// Replaces the quantized tensors by others.
void Replace(TestCheckpoint& stored, const std::string& suffix, const std::string& dtype,
             const std::vector<uint64_t>& shape, size_t bytes) {
  RemoveCtPart(stored, "weight_packed");
  RemoveCtPart(stored, "weight_shape");
  AddCtPart(stored, suffix, dtype, shape, bytes);
}

Json& CtConfigOf(TestCheckpoint& stored) {
  return stored.config["quantization_config"];
}
Json& Group(TestCheckpoint& stored) {
  return CtConfigOf(stored)["config_groups"]["group_0"];
}

// One expert.
void StackCtExperts(TestCheckpoint& stored) {
  CtPart(stored, "weight_packed").shape = {1, 4, 2};
  CtPart(stored, "weight_scale").shape = {1, 4, 2};
  CtPart(stored, "weight_shape").shape = {3};
  CtPart(stored, "weight_shape").bytes = Int64s({1, 4, 16});
}

void RenameCtModule(TestCheckpoint& stored, const std::string& module) {
  for (TestTensor& tensor : stored.tensors) {
    if (tensor.name.starts_with(kExampleModule)) {
      tensor.name = module + tensor.name.substr(kExampleModule.size());
    }
  }
}

struct CtDefect {
  std::string name;
  TestCheckpoint (*good)();
  void (*break_it)(TestCheckpoint& stored);
  std::string text;  // the decisive part of the message
  std::string id;
};

void CheckTable(const std::vector<CtDefect>& defects, ErrorKind kind) {
  for (const CtDefect& defect : defects) {
    INFO(defect.name);
    TestCheckpoint stored = defect.good();
    RequireOk(ReadEverything(stored));
    defect.break_it(stored);
    const Status status = ReadEverything(stored);
    CheckError(status, kind, defect.text);
    CHECK(status.id() == defect.id);
  }
}

TEST_CASE("damaged and contradictory checkpoints are malformed") {
  using T = TestCheckpoint&;
  const std::vector<CtDefect> defects = {
      {"no config groups", SymmetricExample, [](T t) { CtConfigOf(t).erase("config_groups"); },
       "config_groups: the config has no group, but the checkpoint has quantized tensors",
       "config-groups-missing"},
      {"empty config groups", SymmetricExample,
       [](T t) { CtConfigOf(t)["config_groups"] = Json::object(); },
       "the config has no group, but the checkpoint has quantized tensors",
       "config-groups-missing"},
      {"no group names the module", SymmetricExample,
       [](T t) { Group(t)["targets"] = {"re:.*down_proj"}; },
       kExampleModule + ": the module is quantized, but no config group names it",
       "module-without-group"},
      {"the group leaves weights alone", SymmetricExample,
       [](T t) { Group(t)["weights"] = nullptr; },
       "stored pack-quantized, but its config group does not quantize weights",
       "module-scheme-contradiction"},
      {"the group says float", SymmetricExample,
       [](T t) {
         ExampleWeights(t) = {{"type", "float"}, {"strategy", "channel"}};
       },
       "stored pack-quantized, but its config group says 8-bit float channel symmetric",
       "module-scheme-contradiction"},
      {"both weight and weight_packed", SymmetricExample,
       [](T t) {
         AddCtPart(t, "weight", "BF16", {4, 16}, 128);
       },
       kFile + ".weight_packed: the module has both weight and weight_packed", "weight-twice"},
      {"weight_packed is F32", SymmetricExample,
       [](T t) { CtPart(t, "weight_packed").dtype = "F32"; },
       ".weight_packed: packed weights have the wrong dtype (found F32, expected I32)",
       "tensor-dtype"},
      {"weight_packed is flat", SymmetricExample,
       [](T t) { CtPart(t, "weight_packed").shape = {8}; },
       ".weight_packed: the weight has the wrong rank (found [8], expected [N, words])",
       "tensor-shape"},
      {"a global scale", SymmetricExample,
       [](T t) { AddCtPart(t, "weight_global_scale", "F32", {1}, 4); },
       ".weight_global_scale: integer weights have no global scale", "module-scheme-contradiction"},
      {"no scale", SymmetricExample, [](T t) { RemoveCtPart(t, "weight_scale"); },
       ".weight_packed: weight_scale of the module is missing", "tensor-missing"},
      {"no weight", SymmetricExample, [](T t) { RemoveCtPart(t, "weight_packed"); },
       ".weight_scale: the weight that this tensor describes is missing (expected " +
           kExampleModule + ".weight_packed)",
       "tensor-orphan"},
      {"a shape without weight", SymmetricExample,
       [](T t) {
         t.tensors.push_back({"a.b.weight_shape", "I64", {2}, Int64s({1, 1})});
       },
       "tensor a.b.weight_shape: the weight that this tensor describes is missing",
       "tensor-orphan"},
      {"a shape beside a float weight", SymmetricExample,
       [](T t) {
         t.tensors.push_back({"a.b.weight_shape", "I64", {2}, Int64s({1, 1})});
         t.tensors.push_back({"a.b.weight", "F32", {1, 1}, Hex("00 00 00 00")});
       },
       "tensor a.b.weight_shape: the tensor describes a quantized weight, but the weight is not",
       "tensor-orphan"},
      {"an I8 weight without scale", SymmetricExample,
       [](T t) {
         t.tensors.push_back({"a.b.weight", "I8", {1, 1}, Hex("00")});
       },
       "tensor a.b.weight: the quantized weight has no weight_scale (found I8)", "tensor-missing"},
      {"the scale is I32", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_scale") = {
             kExampleModule + ".weight_scale", "I32", {4, 2}, std::vector<std::byte>(32)};
       },
       ".weight_scale: the scales have the wrong dtype (found I32, expected BF16 or F16 or F32)",
       "tensor-dtype"},
      {"the scale has other rows", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_scale").shape = {2, 4};
       },
       ".weight_scale: the shape of the scales contradicts the weight (found [2, 4], expected [4, "
       "2] for a group scheme of [4, 16])",
       "tensor-shape"},
      {"the scale is flat", SymmetricExample, [](T t) { CtPart(t, "weight_scale").shape = {8}; },
       "(found [8], expected [4, 2] for a group scheme", "tensor-shape"},
      {"the group size is twice what the scale says", SymmetricExample,
       [](T t) { ExampleWeights(t)["group_size"] = 16; },
       "(found [4, 2], expected [4, 1] for a group scheme", "tensor-shape"},
      {"the scale is that of a channel", SymmetricExample,
       [](T t) {
         ExampleWeights(t)["group_size"] = nullptr;
         ExampleWeights(t)["strategy"] = "channel";
       },
       "(found [4, 2], expected [4, 1] for a channel scheme", "tensor-shape"},
      {"K is no multiple of the group size", SymmetricExample,
       [](T t) { ExampleWeights(t)["group_size"] = 12; },
       kExampleModule + ": K is not a multiple of the group size (found K = 16, group size 12)",
       "group-size-mismatch"},
      {"the group is larger than K", SymmetricExample,
       [](T t) { ExampleWeights(t)["group_size"] = 32; }, "found K = 16, group size 32",
       "group-size-mismatch"},
      {"weight_shape has another N", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_shape").bytes = Int64s({8, 16});
       },
       ".weight_shape: weight_shape contradicts weight_packed (found [8, 16], expected [4, K] "
       "with K in 2 words of 4-bit codes)",
       "tensor-shape"},
      {"weight_shape has a K that is too large", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_shape").bytes = Int64s({4, 17});
       },
       "found [4, 17]", "tensor-shape"},
      {"weight_shape has a K that is too small", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_shape").bytes = Int64s({4, 8});
       },
       "found [4, 8]", "tensor-shape"},
      {"weight_shape is negative", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_shape").bytes = Int64s({4, -16});
       },
       "found [4, -16]", "tensor-shape"},
      {"weight_shape is F64", SymmetricExample,
       [](T t) { CtPart(t, "weight_shape").dtype = "F64"; },
       ".weight_shape: the numbers of weight_shape have the wrong dtype (found F64, expected I64 "
       "or "
       "I32)",
       "tensor-dtype"},
      {"weight_shape has one number", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_shape").shape = {1};
         CtPart(t, "weight_shape").bytes = Int64s({4});
       },
       ".weight_shape: weight_shape has the wrong shape (found [1], expected [2])", "tensor-shape"},
      {"no weight_shape for a channel", SymmetricExample,
       [](T t) {
         ExampleWeights(t)["group_size"] = nullptr;
         ExampleWeights(t)["strategy"] = "channel";
         RemoveCtPart(t, "weight_shape");
       },
       "weight_shape is missing, and the other tensors do not determine K", "weight-shape-missing"},
      {"no weight_shape and a wrong group size", SymmetricExample,
       [](T t) {
         ExampleWeights(t)["group_size"] = 64;
         RemoveCtPart(t, "weight_shape");
       },
       "weight_shape is missing, and the other tensors do not determine K", "weight-shape-missing"},
      {"no weight_shape and an absurd group size", SymmetricExample,
       [](T t) {
         ExampleWeights(t)["group_size"] = 9223372036854775807LL;
         RemoveCtPart(t, "weight_shape");
       },
       "weight_shape is missing, and the other tensors do not determine K", "weight-shape-missing"},
      {"an empty weight", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_packed") = {kExampleModule + ".weight_packed", "I32", {0, 2}, {}};
         RemoveCtPart(t, "weight_shape");
       },
       ".weight_packed: the weight is empty (found [0, 2])", "tensor-shape"},
      {"no zero point", AsymmetricExample, [](T t) { RemoveCtPart(t, "weight_zero_point"); },
       kExampleModule + ": weight_zero_point is missing, but the scheme is asymmetric",
       "tensor-missing"},
      {"zero points packed along K", AsymmetricExample,
       [](T t) {
         CtPart(t, "weight_zero_point").shape = {2, 1};
       },
       ".weight_zero_point: the tensor has the wrong shape (found [2, 1], expected [1, 2]: packed "
       "down the rows, one per group)",
       "tensor-shape"},
      {"zero points of I8 with the packed shape", AsymmetricExample,
       [](T t) {
         CtPart(t, "weight_zero_point") = {
             kExampleModule + ".weight_zero_point", "I8", {1, 2}, Hex("00 00")};
       },
       "(found [1, 2], expected [4, 2]: one per scale)", "tensor-shape"},
      {"zero points of F32", AsymmetricExample,
       [](T t) { CtPart(t, "weight_zero_point").dtype = "F32"; },
       "the zero points have the wrong dtype (found F32, expected I32 or I8)", "tensor-dtype"},
      {"a zero point outside 4 bits", AsymmetricExample,
       [](T t) {
         CtPart(t, "weight_zero_point") = {
             kExampleModule + ".weight_zero_point", "I8", {4, 2}, Hex("00 00 00 00 00 08 00 00")};
       },
       ".weight_zero_point: a zero point is outside 4 bits (found 8 at [2, 1], expected -8 to 7)",
       "zero-point-outside-bits"},
      {"a zero point in a symmetric module", AsymmetricExample,
       [](T t) { ExampleWeights(t)["symmetric"] = true; },
       ".weight_zero_point: the scheme is symmetric, but a zero point is not zero (found -8 at "
       "[0, 1])",
       "zero-point-not-symmetric"},
      {"a scale of NaN", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_scale").bytes[11] = std::byte{0x7F},
                   CtPart(t, "weight_scale").bytes[10] = std::byte{0xC0};
       },
       kFile + ".weight_scale: the scale of channel 2, group 1 is not a finite number (found NaN)",
       "scale-not-finite"},
      {"a scale of infinity", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_scale").bytes[1] = std::byte{0xFF},
                   CtPart(t, "weight_scale").bytes[0] = std::byte{0x80};
       },
       ".weight_scale: the scale of channel 0, group 0 is not a finite number (found infinity)",
       "scale-not-finite"},
      {"a scale of zero", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_scale").bytes[6] = std::byte{0},
                   CtPart(t, "weight_scale").bytes[7] = std::byte{0};
       },
       ".weight_scale: the scale of channel 1, group 1 is zero, but the group has weights (found "
       "code 7 at [1, 8], expected the zero point 8 in the whole group)",
       "scale-zero"},
      {"a scale of minus zero", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_scale").bytes[6] = std::byte{0},
                   CtPart(t, "weight_scale").bytes[7] = std::byte{0x80};
       },
       "the scale of channel 1, group 1 is zero", "scale-zero"},
      {"a group index out of range", SymmetricExample,
       [](T t) {
         AddCtPart(t, "weight_g_idx", "I32", {16}, 64);
         CtPart(t, "weight_g_idx").bytes[60] = std::byte{2};
       },
       ".weight_g_idx: a group index is out of range (found 2 at [15], expected 0 to 1: there are "
       "2 groups)",
       "order-out-of-range"},
      {"a group index that is half set", SymmetricExample,
       [](T t) {
         AddCtPart(t, "weight_g_idx", "I32", {16}, 64);
         for (size_t i = 60; i < 64; ++i) CtPart(t, "weight_g_idx").bytes[i] = std::byte{0xFF};
       },
       ".weight_g_idx: only some group indices are set (found 1 of 16 are -1)", "order-half-set"},
      {"a group index of another length", SymmetricExample,
       [](T t) { AddCtPart(t, "weight_g_idx", "I32", {8}, 32); },
       "(found [8], expected [16]: one per input channel)", "tensor-shape"},
      {"a group index of F32", SymmetricExample,
       [](T t) { AddCtPart(t, "weight_g_idx", "F32", {16}, 64); },
       "the group indices have the wrong dtype (found F32, expected I32 or I64)", "tensor-dtype"},
      {"groups of unequal size", SymmetricExample,
       [](T t) { AddCtPart(t, "weight_g_idx", "I32", {16}, 64); },
       ".weight_g_idx: the groups are not of one size (found 16 input channels in group 0, "
       "expected "
       "8)",
       "order-unbalanced"},
      {"codes of twice the bits", SymmetricExample, [](T t) { ExampleWeights(t)["num_bits"] = 8; },
       "weight_shape contradicts weight_packed (found [4, 16], expected [4, K] with K in 2 words "
       "of 8-bit codes)",
       "tensor-shape"},
      {"both weight_scale and weight_scale_inv", SymmetricExample,
       [](T t) { AddCtPart(t, "weight_scale_inv", "F32", {1}, 4); },
       ".weight_scale_inv: the module has both weight_scale and weight_scale_inv", "weight-twice"},
      {"a shape of two numbers for stacked experts", SymmetricExample,
       [](T t) {
         CtPart(t, "weight_packed").shape = {1, 4, 2};
       },
       ".weight_shape: weight_shape has the wrong shape (found [2], expected [3])", "tensor-shape"},
      {"FP8 with zero points", SymmetricExample,
       [](T t) {
         Replace(t, "weight", "F8_E4M3", {4, 16}, 64);
         CtConfigOf(t)["format"] = "float-quantized";
         ExampleWeights(t) = {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};
         CtPart(t, "weight_scale").shape = {4, 1};
         CtPart(t, "weight_scale").bytes.resize(8);
         AddCtPart(t, "weight_zero_point", "I8", {4, 1}, 4);
       },
       ".weight_zero_point: FP8 weights have no zero points", "module-scheme-contradiction"},
      {"static activations without their scale", SymmetricExample,
       [](T t) {
         Group(t)["input_activations"] = {{"strategy", "tensor"}};
       },
       "input_scale is missing, but activations are quantized statically", "input-missing"},
      {"static activations whose scale is zero", SymmetricExample,
       [](T t) {
         Group(t)["input_activations"] = {{"strategy", "tensor"}};
         AddCtPart(t, "input_scale", "F32", {1}, 4);
       },
       ".input_scale: an activation scale is not a positive number (found 0",
       "input-scale-invalid"},
      {"static activations with a scale per channel", SymmetricExample,
       [](T t) {
         Group(t)["input_activations"] = {{"strategy", "tensor"}};
         AddCtPart(t, "input_scale", "F32", {16}, 64);
       },
       ".input_scale: activations need exactly one static scale (found [16], expected [1])",
       "tensor-shape"},
      {"asymmetric static activations without a zero point", SymmetricExample,
       [](T t) {
         Group(t)["input_activations"] = {{"strategy", "tensor"}, {"symmetric", false}};
         AddCtPart(t, "input_scale", "BF16", {1}, 2);
         CtPart(t, "input_scale").bytes = Hex("80 3f");
       },
       "input_zero_point is missing, but activations are quantized statically", "input-missing"},
      {"an input scale", SymmetricExample, [](T t) { AddCtPart(t, "input_scale", "F32", {1}, 4); },
       ".input_scale: this tensor belongs to quantized activations, which the config does not "
       "mention",
       "module-scheme-contradiction"},
      {"nothing is quantized", SymmetricExample,
       [](T t) { t.tensors.erase(t.tensors.begin(), t.tensors.begin() + 3); },
       "the config declares quantized weights, but no tensor is one", "nothing-quantized"},
  };
  CHECK(defects.size() >= 25);
  CheckTable(defects, ErrorKind::kMalformed);
}

TEST_CASE("sound checkpoints that are not supported yet are unsupported, by name") {
  using T = TestCheckpoint&;
  const std::vector<CtDefect> defects = {
      {"output quantization", SymmetricExample,
       [](T t) {
         Group(t)["output_activations"] = {{"strategy", "tensor"}};
       },
       "quantized outputs of linear layers are not supported", "scheme-unsupported"},
      {"packed before 0.4", SymmetricExample,
       [](T t) {
         Replace(t, "weight", "I32", {4, 2}, 32);
       },
       ".weight: packed (compressed-tensors before 0.4) weights are not supported",
       "storage-unsupported"},
      {"fake-quantized", SymmetricExample,
       [](T t) {
         Replace(t, "weight", "BF16", {4, 16}, 128);
       },
       ".weight: the weight is fake-quantized: stored in floating point, with scales",
       "weight-fake-quantized"},
      {"fused experts", SymmetricExample,
       [](T t) {
         AddCtPart(t, "gate_up_proj_packed", "I32", {4, 2}, 32);
       },
       ".gate_up_proj_packed: packed weights under an unknown name", "storage-unsupported"},
      {"activation order of stacked experts", SymmetricExample,
       [](T t) {
         StackCtExperts(t);
         AddCtPart(t, "weight_g_idx", "I32", {16}, 64);
       },
       ".weight_g_idx: act-order of stacked experts is not supported", "scheme-unsupported"},
      {"static activations of stacked experts", SymmetricExample,
       [](T t) {
         StackCtExperts(t);
         Group(t)["input_activations"] = {{"strategy", "tensor"}};
         AddCtPart(t, "input_scale", "F32", {1}, 4);
       },
       "static activations of stacked experts are not supported", "scheme-unsupported"},
      {"static activations per group", SymmetricExample,
       [](T t) {
         Group(t)["input_activations"] = {{"strategy", "group"}, {"group_size", 8}};
       },
       "this quantization of activations is not supported", "scheme-unsupported"},
      {"weights with one more scale", SymmetricExample,
       [](T t) { ExampleWeights(t)["strategy"] = "tensor_group"; },
       "weights with strategy tensor_group are not supported", "scheme-unsupported"},
      {"sparse", SymmetricExample,
       [](T t) {
         AddCtPart(t, "weight.bitmask", "U8", {4, 2}, 8);
       },
       "sparse-bitmask weights are not supported", "storage-unsupported"},
      {"marlin", SymmetricExample,
       [](T t) {
         AddCtPart(t, "scale_packed", "F16", {4, 2}, 16);
       },
       "marlin-24 weights are not supported", "storage-unsupported"},
      {"scales of 64 bits", SymmetricExample,
       [](T t) {
         RemoveCtPart(t, "weight_scale");
         AddCtPart(t, "weight_scale", "F64", {4, 2}, 64);
       },
       ".weight_scale: scales of 64 bits are not supported", "tensor-dtype"},
      {"an embedding with one scale", SymmetricExample,
       [](T t) {
         Group(t)["targets"] = {"re:.*"};
         Group(t)["weights"]["strategy"] = "tensor";
         Group(t)["weights"].erase("group_size");
         RenameCtModule(t, "model.embed_tokens");
       },
       "model.embed_tokens: this quantization of an embedding is not supported (found "
       "pack-quantized (config.json: quantization_config.config_groups.group_0), expected packed "
       "integers with a scale for each row or group",
       "embedding-quantized"},
      {"an embedding in bytes", SymmetricExample,
       [](T t) {
         Group(t)["targets"] = {"Embedding"};
         Replace(t, "weight", "I8", {4, 16}, 64);
         RenameCtModule(t, "model.embed_tokens");
       },
       "this quantization of an embedding is not supported (found int-quantized",
       "embedding-quantized"},
      {"an embedding that its group does not quantize", SymmetricExample,
       [](T t) {
         Group(t)["targets"] = {"Embedding"};
         Group(t).erase("weights");
         RenameCtModule(t, "model.embed_tokens");
       },
       "this quantization of an embedding is not supported (found pack-quantized",
       "embedding-quantized"},
      {"an embedding that no group means", SymmetricExample,
       [](T t) { RenameCtModule(t, "transformer.wte"); },
       "transformer.wte: the embedding is quantized, but no config group means it (found "
       "pack-quantized tensors, expected a target that is its name",
       "embedding-quantized"},
      {"a Conv1D with its inputs first", SymmetricExample,
       [](T t) {
         t.config["model_type"] = "gpt2";
         RenameCtModule(t, "transformer.h.0.mlp.c_fc");
         t.tensors.push_back(
             {"transformer.h.0.mlp.c_fc.bias", "BF16", {16}, std::vector<std::byte>(32)});
       },
       "c_fc.weight_packed: the weight of a Conv1D is quantized as the model stores it, [K, N]: "
       "its scales belong to input channels, which prepack does not support (found [4, 16] "
       "beside a bias of 16, "
       "expected [N, K] = [16, 4])",
       "storage-unsupported"},
      {"a target that is a class", SymmetricExample,
       [](T t) { Group(t)["targets"] = {"QKVProjection"}; },
       kExampleModule + ": no config group names the module (found target \"QKVProjection\"",
       "module-without-group"},
      {"a long name", SymmetricExample, [](T t) { RenameCtModule(t, std::string(600, 'a')); },
       "the name of the module is too long (found 600 bytes, expected at most 512)",
       "module-name-unusable"},
      {"weights in floating point", SymmetricExample,
       [](T t) {
         t.tensors.erase(t.tensors.begin(), t.tensors.begin() + 3);
         CtConfigOf(t)["quantization_status"] = "frozen";
       },
       "the weights are still in floating point (found quantization_status \"frozen\"",
       "nothing-quantized"},
      {"one weight in floating point", SymmetricExample,
       [](T t) {
         t.tensors.push_back(
             {"model.layers.1.mlp.up_proj.weight", "BF16", {1, 2}, Hex("00 00 00 00")});
         CtConfigOf(t)["quantization_status"] = "frozen";
       },
       "model.layers.1.mlp.up_proj.weight: the weight is still in floating point, though a config "
       "group names it (found weight BF16, quantization_status \"frozen\"",
       "weight-fake-quantized"},
      {"only the KV cache", SymmetricExample,
       [](T t) {
         t.tensors.erase(t.tensors.begin(), t.tensors.begin() + 3);
         CtConfigOf(t)["config_groups"] = Json::object();
         CtConfigOf(t)["kv_cache_scheme"] = {{"num_bits", 8}};
       },
       "only the KV cache is quantized, no weights", "nothing-quantized"},
      {"transforms", SymmetricExample,
       [](T t) { CtConfigOf(t)["transform_config"] = RotatedAt("input"); },
       "transform_config.config_groups.R4.apply[1].location: the model rotates activations at run "
       "time, which prepack does not support (found \"input\"",
       "rotation"},
      {"transforms of keys", SymmetricExample,
       [](T t) { CtConfigOf(t)["transform_config"] = RotatedAt("k_cache"); },
       "rotates activations at run time", "rotation"},
      {"transforms that are not said where", SymmetricExample,
       [](T t) {
         CtConfigOf(t)["transform_config"] = {{"config_groups", {{"R1", Json::object()}}}};
       },
       "transform_config.config_groups.R1: it does not say where to rotate the model", "rotation"},
      {"transforms of another kind", SymmetricExample,
       [](T t) {
         CtConfigOf(t)["transform_config"] = {{"groups", Json::object()}};
       },
       "transform_config: it does not say where to rotate the model", "rotation"},
  };
  CheckTable(defects, ErrorKind::kUnsupported);
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST_CASE("a byte changed anywhere gives another model or an error of the input, never a crash") {
  const TempFolder folder;
  AsymmetricExample().Write(folder.path());
  SplitMix64 random(3);
  size_t refused = 0;
  for (const char* name : {"config.json", "model.safetensors"}) {
    const std::string good = ReadFile(folder / name);
    REQUIRE(good.size() > 400);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] =
          static_cast<char>(random.Below(2) == 0 ? random.Below(256) : 0x20 + random.Below(0x5F));
      std::ofstream(folder / name, std::ios::binary) << bad;
      const Status status = ReadEverything(folder.path());
      if (status.ok()) continue;
      ++refused;
      INFO(name << " byte " << i << ": " << status.ToString());
      CHECK((status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported));
    }
    std::ofstream(folder / name, std::ios::binary) << good;
  }
  RequireOk(ReadEverything(folder.path()));
  CHECK(refused > 500);
}

TEST_CASE("a file that shrinks after it was opened is an error of the read") {
  const TempFolder folder;
  SymmetricExample().Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  std::filesystem::resize_file(folder / "model.safetensors", 8);
  std::vector<float> scales(8);
  const Status status = opened.Module(kExampleModule).ReadScales(0, 4, scales);
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.ToString(), Catch::Contains("model.safetensors"));
}

}  // namespace
}  // namespace prepack::testing
