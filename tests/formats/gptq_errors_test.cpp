// Sound modules, each broken in one way.

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/defects.h"
#include "formats/gptq_example.h"
#include "formats/read_helpers.h"
#include "prepack/formats/gptq/shape.h"
#include "prepack/formats/stored_linear.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::GptqConfigOf;
using testing::GptqExample;
using testing::Hex;
using testing::kGptqModule;
using testing::MakeGptq;
using testing::OpenedModel;
using testing::OpenModel;
using testing::SmallGptq;
using testing::TempFolder;
using testing::TestCheckpoint;
using testing::TestTensor;

struct GptqDefect {
  std::string name;
  std::function<void(TestCheckpoint&)> make;
  ErrorKind kind;
  std::string id;
  std::string text;
};

TestTensor& GptqPart(TestCheckpoint& checkpoint, const std::string& suffix) {
  return checkpoint.At(kGptqModule + "." + suffix);
}

void AddPart(TestCheckpoint& checkpoint, const std::string& suffix) {
  checkpoint.tensors.push_back({kGptqModule + "." + suffix, "F16", {1, 1}, Hex("00 3c")});
}

TEST_CASE("Broken GPTQ checkpoints are refused by name") {
  const auto malformed = ErrorKind::kMalformed;
  const auto unsupported = ErrorKind::kUnsupported;
  const std::vector<GptqDefect> defects = {
      {"no qzeros", [](auto& c) { c.Remove(kGptqModule + ".qzeros"); }, malformed, "tensor-missing",
       "qzeros of a quantized module is missing"},
      {"no scales", [](auto& c) { c.Remove(kGptqModule + ".scales"); }, malformed, "tensor-missing",
       "scales of a quantized module is missing"},
      {"no qweight", [](auto& c) { c.Remove(kGptqModule + ".qweight"); }, malformed,
       "tensor-missing", "qweight of a quantized module is missing"},
      {"twice", [](auto& c) { AddPart(c, "weight"); }, malformed, "weight-twice", "stored twice"},
      {"adapter tensor", [](auto& c) { AddPart(c, "lora_A"); }, unsupported, "adapter-unsupported",
       "low-rank adapters"},
      {"zero points of twice the width",
       [](auto& c) {
         TestTensor& zeros = GptqPart(c, "qzeros");
         const auto bytes = zeros.bytes;
         zeros.bytes.insert(zeros.bytes.end(), bytes.begin(), bytes.end());
         zeros.shape[1] *= 2;
       },
       malformed, "tensor-shape", "the zero points contradict scales and width"},
      {"Marlin tensors",
       [](auto& c) {
         AddPart(c, "B");
         AddPart(c, "s");
       },
       unsupported, "gptq-format", "Marlin weights are not supported"},
      {"QQQ tensors",
       [](auto& c) {
         AddPart(c, "B");
         AddPart(c, "s_channel");
       },
       unsupported, "gptq-format", "QQQ weights are not supported"},
      {"EXL3 tensors", [](auto& c) { AddPart(c, "trellis"); }, unsupported, "gptq-format", "EXL3"},
      {"compressed-tensors", [](auto& c) { AddPart(c, "weight_packed"); }, malformed,
       "module-foreign", "not as gptq stores it"},
      {"Marlin flag", [](auto& c) { GptqConfigOf(c)["is_marlin_format"] = true; }, unsupported,
       "gptq-format", "is_marlin_format"},
      {"Marlin format", [](auto& c) { GptqConfigOf(c)["checkpoint_format"] = "marlin"; },
       unsupported, "gptq-format", "format marlin"},
      {"BitBLAS format", [](auto& c) { GptqConfigOf(c)["checkpoint_format"] = "bitblas"; },
       unsupported, "gptq-format", "format bitblas"},
      {"QQQ format", [](auto& c) { GptqConfigOf(c)["checkpoint_format"] = "qqq"; }, unsupported,
       "gptq-format", "format qqq"},
      {"pack_dtype", [](auto& c) { GptqConfigOf(c)["pack_dtype"] = "int16"; }, unsupported,
       "pack-dtype", "found int16"},
      {"rotation", [](auto& c) { GptqConfigOf(c)["rotation"] = "hadamard"; }, unsupported,
       "rotation", "rotated weights"},
      {"adapter",
       [](auto& c) {
         GptqConfigOf(c)["adapter"] = {{"name", "eora"}};
       },
       unsupported, "adapter-unsupported", "low-rank adapters"},
      {"spellings", [](auto& c) { GptqConfigOf(c)["wbits"] = 8; }, malformed, "config-conflict",
       "two spellings"},
      {"bits", [](auto& c) { GptqConfigOf(c)["bits"] = 9; }, malformed, "config-field-invalid",
       "out of range"},
      {"quantizer", [](auto& c) { GptqConfigOf(c)["meta"]["quantizer"] = 3; }, malformed,
       "config-field-invalid", "meta.quantizer: the field has the wrong type"},
      {"blocks", [](auto& c) { GptqConfigOf(c)["modules_in_block_to_quantize"] = {1}; }, malformed,
       "config-field-invalid", "expected a list of names, or of lists of names"},
      {"bits as text", [](auto& c) { GptqConfigOf(c)["bits"] = "4"; }, malformed,
       "config-field-invalid", "bits: the field has the wrong type"},
      {"no object", [](auto& c) { GptqConfigOf(c) = "gptq"; }, malformed, "config-field-invalid",
       "expected an object"},
      {"a rule of another format",
       [](auto& c) {
         GptqConfigOf(c)["dynamic"] = {{".*up", {{"format", "gptq_v2"}}}};
       },
       unsupported, "gptq-format", "prepack does not support a rule that changes the format"},
      {"too many rules",
       [](auto& c) {
         Json& rules = GptqConfigOf(c)["dynamic"];
         for (int i = 0; i < 4097; ++i) rules["-:m" + std::to_string(i)] = Json::object();
       },
       unsupported, "config-too-large", "too many rules (found 4097"},
      {"group size", [](auto& c) { GptqConfigOf(c)["group_size"] = 8; }, malformed, "tensor-shape",
       "Group size 16 would fit"},
      {"group size 0", [](auto& c) { GptqConfigOf(c)["group_size"] = 0; }, malformed,
       "config-field-invalid", "not positive"},
      {"width", [](auto& c) { GptqConfigOf(c)["bits"] = 8; }, malformed, "tensor-shape",
       "g_idx and qweight disagree about K"},
      {"qweight dtype", [](auto& c) { GptqPart(c, "qweight").dtype = "F32"; }, malformed,
       "tensor-dtype", "wrong dtype"},
      {"qweight I16",
       [](auto& c) {
         GptqPart(c, "qweight").dtype = "I16";
         GptqPart(c, "qweight").shape = {4, 16};
       },
       unsupported, "pack-dtype", "other words"},
      {"rank",
       [](auto& c) {
         GptqPart(c, "qweight").shape = {1, 4, 8};
       },
       malformed, "tensor-shape", "not a matrix"},
      {"AWQ",
       [](auto& c) {
         GptqPart(c, "qweight").shape = {32, 1};
         c.Remove(kGptqModule + ".g_idx");
       },
       malformed, "gptq-is-awq", "this is AWQ packing"},
      {"zero point columns",
       [](auto& c) {
         GptqPart(c, "qzeros").shape = {1, 2};
       },
       malformed, "tensor-shape", "zero points contradict"},
      {"scale columns",
       [](auto& c) {
         GptqPart(c, "scales").shape = {2, 4};
         GptqPart(c, "scales").bytes.resize(16);
       },
       malformed, "tensor-shape", "scales and qweight disagree about N"},
      {"order length",
       [](auto& c) {
         GptqPart(c, "g_idx").shape = {31};
         GptqPart(c, "g_idx").bytes.resize(124);
       },
       malformed, "tensor-shape", "g_idx and qweight disagree"},
      {"order range", [](auto& c) { GptqPart(c, "g_idx").bytes[0] = std::byte{2}; }, malformed,
       "order-out-of-range", "2 at [0]"},
      {"order unbalanced", [](auto& c) { GptqPart(c, "g_idx").bytes[0] = std::byte{1}; }, malformed,
       "order-unbalanced", "15 input channels in group 0"},
      {"symmetric middle", [](auto& c) { GptqPart(c, "qzeros").bytes[0] = std::byte{0x75}; },
       malformed, "zero-point-not-symmetric", "5 at channel 0"},
      {"rule",
       [](auto& c) {
         GptqConfigOf(c)["dynamic"] = {{".*up", {{"bits", "4"}}}};
       },
       malformed, "config-field-invalid", "wrong type"},
      {"embedding",
       [](auto& c) {
         for (TestTensor& tensor : c.tensors) {
           const size_t at = tensor.name.find("layers.0.mlp.up_proj");
           if (at != std::string::npos) tensor.name.replace(at, 20, "embed_tokens");
         }
       },
       unsupported, "embedding-quantized", "quantized embeddings"},
      {"nothing", [](auto& c) { c.tensors = {c.At("model.norm.weight")}; }, malformed,
       "nothing-quantized", "no tensor is one"},
  };
  for (const GptqDefect& defect : defects) {
    CAPTURE(defect.name);
    TempFolder temp;
    TestCheckpoint checkpoint = SmallGptq();
    defect.make(checkpoint);
    checkpoint.Write(temp.path());
    const Result<OpenedModel> opened = OpenModel(temp.path());
    CheckError(opened.status(), defect.kind, defect.text);
    CHECK(opened.status().id() == defect.id);
  }
}

TEST_CASE("Copies of the GPTQ config that disagree are refused") {
  TempFolder temp;
  SmallGptq().Write(temp.path());
  std::ofstream(temp.path() / "quantize_config.json") << R"({"bits": 4, "group_size": 32})";
  const Result<OpenedModel> opened = OpenModel(temp.path());
  CheckError(opened.status(), ErrorKind::kMalformed,
             "quantize_config.json.group_size: two copies of the quantization config disagree "
             "(found 32, expected 16, as config.json");
  CHECK(opened.status().id() == "config-conflict");
}

TEST_CASE("Rules that only one copy of the GPTQ config has are refused") {
  const auto open = [](const Json& in_config, const Json& beside) {
    TempFolder temp;
    TestCheckpoint checkpoint = SmallGptq();
    Json copy = GptqConfigOf(checkpoint);
    if (!in_config.is_null()) GptqConfigOf(checkpoint)["dynamic"] = in_config;
    if (!beside.is_null()) copy["dynamic"] = beside;
    checkpoint.Write(temp.path());
    std::ofstream(temp.path() / "quantize_config.json") << copy;
    return OpenModel(temp.path()).status();
  };
  const Json rules = {{"-:.*down_proj", Json::object()}};
  testing::RequireOk(open(rules, rules));
  testing::RequireOk(open(nullptr, nullptr));
  testing::RequireOk(open(Json::object(), false));  // none in either
  Status status = open(rules, nullptr);
  CheckError(status, ErrorKind::kMalformed,
             "config.json: quantization_config.dynamic: two copies of the quantization config "
             "disagree (found an object of 1 members, expected no rules, as quantize_config.json");
  CHECK(status.id() == "config-conflict");
  status = open(Json::object(), rules);
  CheckError(status, ErrorKind::kMalformed, "quantize_config.json.dynamic: two copies");
  CHECK(status.id() == "config-conflict");
  status = open({{"-:.*o_proj", Json::object()}}, rules);
  CHECK(status.id() == "config-conflict");
  // The order of rules, and of what they say, is none of it.
  const Json eight = {{"bits", 8}, {"group_size", 32}};
  const Json reversed = {{"group_size", 32}, {"bits", 8}};
  testing::RequireOk(open({{"+:.*\\.10\\.", eight}, {"-:.*\\.2\\.", Json::object()}},
                          {{"-:.*\\.2\\.", Json::object()}, {"+:.*\\.10\\.", reversed}}));
  status = open({{"+:.*\\.10\\.", eight}, {"-:.*\\.2\\.", Json::object()}},
                {{"-:.*\\.2\\.", Json::object()}, {"+:.*\\.10\\.", {{"bits", 8}}}});
  CHECK(status.id() == "config-conflict");
}

TEST_CASE("Zero points that vary in a symmetric module are found when they are read") {
  TempFolder temp;
  TestCheckpoint checkpoint = SmallGptq();
  GptqPart(checkpoint, "qzeros").bytes[5] = std::byte{0x78};  // channel 2 of group 1
  checkpoint.Write(temp.path());
  const OpenedModel opened = testing::MustOpen(temp.path());
  std::vector<uint8_t> zeros(16);
  const Status status = opened.Module(kGptqModule).ReadZeroPoints(0, 8, zeros);
  CheckError(status, ErrorKind::kMalformed, "8 at channel 2, group 1; 7 to 8");
  CHECK(status.id() == "zero-point-not-symmetric");
}

TEST_CASE("A zero point of 0 stored as -1 is refused unless the producer is known") {
  // Zero points 7, 0, 9, 15, 1, 0, 8, 3 of one group: fields 6 f 8 e 0 f 7 2 with borrows.
  GptqExample x;
  x.symmetric = false;
  x.group_size = 32;
  x.Randomize(5, 1);
  TestCheckpoint checkpoint = MakeGptq(x);
  GptqPart(checkpoint, "qzeros").bytes = Hex("f6 e7 f0 26");
  for (const char* producer :
       {"", "gptqmodel:0.8.1", "optimum:1.2", "gptqmodel:0.9.0", "intel/auto-round:0.1"}) {
    CAPTURE(producer);
    GptqConfigOf(checkpoint)["meta"]["quantizer"] = producer;
    TempFolder temp;
    checkpoint.Write(temp.path());
    const OpenedModel opened = testing::MustOpen(temp.path());
    std::vector<uint8_t> zeros(8);
    const Status status = opened.Module(kGptqModule).ReadZeroPoints(0, 8, zeros);
    if (std::string(producer).find(":0.9") == std::string::npos &&
        std::string(producer).find("auto-round") == std::string::npos) {
      CheckError(status, ErrorKind::kMalformed, "field 15 at channel 1, group 0");
      CHECK(status.id() == "gptq-zero-lost");
    } else {
      testing::RequireOk(status);
      CHECK(zeros == std::vector<uint8_t>{7, 0, 9, 15, 1, 0, 8, 3});
    }
  }
}

TEST_CASE("GPTQ scales that are broken are refused") {
  struct Number {
    uint16_t bits;  // of channel 3, group 1
    std::string id;
    std::string text;
  };
  for (const Number& number :
       {Number{0x7E00, "scale-not-finite", "not a finite number (found NaN"},
        Number{0xFC00, "scale-not-finite", "(found infinity"},
        Number{0x8000, "scale-zero", "is zero, but the group has weights"}}) {
    CAPTURE(number.bits);
    TestCheckpoint stored = SmallGptq();
    std::vector<std::byte>& bytes = GptqPart(stored, "scales").bytes;
    constexpr size_t kAt = size_t{2} * (8 + 3);
    bytes[kAt] = static_cast<std::byte>(number.bits & 0xFFU);
    bytes[kAt + 1] = static_cast<std::byte>(number.bits >> 8);
    const Status status = testing::ReadEverything(stored);
    CheckError(status, ErrorKind::kMalformed, number.text);
    CheckError(status, ErrorKind::kMalformed, "the scale of channel 3, group 1 ");
    CHECK(status.id() == number.id);
  }
}

TEST_CASE("More input channels than an order can count are refused before the index is read") {
  const TempFolder temp;
  SmallGptq().Write(temp.path());
  const Checkpoint checkpoint = testing::Value(Checkpoint::Open(temp.path()));
  GptqShape shape;
  shape.k = 1ULL << 32;
  shape.group_size = 1ULL << 20;
  shape.groups = 1ULL << 12;
  shape.g_idx = checkpoint.Find(kGptqModule + ".g_idx");
  REQUIRE(shape.g_idx != nullptr);
  CheckError(ReadGptqOrder(checkpoint, shape).status(), ErrorKind::kUnsupported,
             "K is too large for an index of groups (found 4294967296");
}

TEST_CASE("Numbers that are no floats are not supported as such") {
  const TempFolder temp;
  SmallGptq().Write(temp.path());
  const Checkpoint checkpoint = testing::Value(Checkpoint::Open(temp.path()));
  std::vector<float> out(1);
  CheckError(ReadFloats(checkpoint, *checkpoint.Find(kGptqModule + ".g_idx"), 0, out),
             ErrorKind::kUsage, "g_idx: not a tensor of floats that are read (found I32)");
}

}  // namespace
}  // namespace prepack
