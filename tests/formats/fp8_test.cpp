#include "formats/fp8.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/fp8_example.h"
#include "formats/read_helpers.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Fp8Blocks;
using testing::Fp8Static;
using testing::Hex;
using testing::kFp8Module;
using testing::TestCheckpoint;

TEST_CASE("FP8 blocks of any size are scaled block by block") {
  const testing::TempFolder folder;
  Fp8Blocks().Write(folder.path());
  const testing::OpenedModel opened = testing::MustOpen(folder.path());
  CHECK(opened.model.format == "fp8");
  REQUIRE(opened.model.modules.size() == 1);
  const QuantizedLinear& linear = opened.Module(kFp8Module);
  CHECK(DescribeScheme(linear.scheme()) == "wfp8afp8 block 2x4");
  CHECK(DescribeActivations(linear.scheme().activations) == "8-bit float per group of 4 dynamic");
  CHECK(testing::Dequantize(linear, 0, 3) ==
        std::vector<float>{1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4});
  CHECK(testing::Dequantize(linear, 1, 2) == std::vector<float>{1, 1, 1, 1, 2, 3, 3, 3, 3, 4});
}

TEST_CASE("One scale per module and a static scale of activations") {
  const testing::TempFolder folder;
  Fp8Static().Write(folder.path());
  const testing::OpenedModel opened = testing::MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kFp8Module);
  CHECK(DescribeScheme(linear.scheme()) == "wfp8afp8 tensor");
  CHECK(testing::Dequantize(linear, 0, 3) == std::vector<float>(15, 2.0F));
  REQUIRE(linear.input().has_value());
  CHECK(linear.input()->scale == 0.5F);
}

TEST_CASE("What is wrong with an FP8 checkpoint is said") {
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
       "(found [2, 2], expected [1] for a tensor scheme", "tensor-shape"},
      {"a block of zero", Fp8Blocks,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {0, 128};
       },
       malformed, "weight_block_size: the block is not two positive numbers",
       "config-field-invalid"},
      {"a weight of one dimension", Fp8Blocks,
       [](T t) { t.At(kFp8Module + ".weight").shape = {15}; }, malformed,
       "the weight is no matrix, or is empty (found [15]", "tensor-shape"},
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
       unsupported, "FP8 weights of this type are not read (found F8_E5M2", "storage-unsupported"},
      {"E5M2 by name", Fp8Blocks, [](T t) { t.config["quantization_config"]["fmt"] = "e5m2"; },
       unsupported, "fmt: only E4M3 weights are read", "scheme-unsupported"},
      {"an unknown activation scheme", Fp8Blocks,
       [](T t) { t.config["quantization_config"]["activation_scheme"] = "magic"; }, unsupported,
       "activation_scheme: unknown keyword (found \"magic\"", "config-keyword-unknown"},
      {"a list that is none", Fp8Blocks,
       [](T t) { t.config["quantization_config"]["ignored_layers"] = "lm_head"; }, malformed,
       "ignored_layers: the field has the wrong type", "config-field-invalid"},
      {"nothing quantized", Fp8Blocks,
       [](T t) { t.tensors.erase(t.tensors.begin(), t.tensors.begin() + 2); }, malformed,
       "the config declares FP8 weights, but no tensor is one", "nothing-quantized"},
      {"no static scale", Fp8Static, [](T t) { t.Remove(kFp8Module + ".input_scale"); }, malformed,
       "input_scale is missing", "input-missing"},
  };
  for (const Defect& defect : defects) {
    INFO(defect.name);
    TestCheckpoint stored = defect.good();
    testing::RequireOk(testing::ReadEverything(stored));
    defect.break_it(stored);
    const Status status = testing::ReadEverything(stored);
    CheckError(status, defect.kind, defect.text);
    CHECK(status.id() == defect.id);
  }
}

TEST_CASE("Copies of the FP8 config that disagree are refused") {
  const auto read = [](void (*change)(Json & copy)) {
    TestCheckpoint stored = Fp8Blocks();
    Json copy = stored.config["quantization_config"];
    change(copy);
    stored.config["text_config"] = {{"quantization_config", copy}};
    return testing::ReadEverything(stored);
  };
  testing::RequireOk(read([](Json&) {}));
  testing::RequireOk(read([](Json& copy) { copy["ignored_layers"] = {"lm_head"}; }));
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
  status = read([](Json& copy) { copy["fmt"] = "e5m2"; });
  CHECK(status.id() == "scheme-unsupported");
}

TEST_CASE("A module that the config excludes and that is FP8 all the same is a finding") {
  TestCheckpoint stored = Fp8Blocks();
  stored.config["quantization_config"]["modules_to_not_convert"] = {kFp8Module};
  const testing::TempFolder folder;
  stored.Write(folder.path());
  const testing::OpenedModel opened = testing::MustOpen(folder.path());
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "module-ignored-but-quantized");
  CHECK(opened.model.findings[0].where == kFp8Module);
}

}  // namespace
}  // namespace prepack
