// FP8 experts in stacked tensors, and with stacked scales.

#include "prepack/formats/fp8/module.h"

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

const std::string kExperts = "model.layers.0.mlp.experts.";

// The weights of a module, which are its scales, because every code is 1.
std::vector<float> WeightsOfExpert(const TestCheckpoint& stored, const std::string& name) {
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.findings.empty());
  const QuantizedLinear& linear = opened.Module(kExperts + name);
  return Dequantize(linear, 0, linear.n());
}

TEST_CASE("stacked FP8 experts are modules of their own, [N, K] whichever way they lie") {
  for (const TestCheckpoint& stored : {Fp8Experts(), Fp8ExpertsTransposed()}) {
    CHECK(WeightsOfExpert(stored, "gate_up_proj.1") ==
          std::vector<float>{5, 5, 7, 5, 5, 7, 6, 6, 8, 6, 6, 8});
    CHECK(WeightsOfExpert(stored, "down_proj.0") == std::vector<float>{1, 1, 1, 1, 2, 2});
  }
}

TEST_CASE("codes of a transposed FP8 expert are found one by one, in panels and at their places") {
  TestCheckpoint stored = Fp8ExpertsTransposed();
  TestTensor& codes = stored.At(kExperts + "gate_up_proj");
  for (size_t i = 0; i < 24; ++i) codes.bytes[i] = static_cast<std::byte>(i);
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kExperts + "gate_up_proj.1");
  // Code (n, k) of expert 1 is byte 12 + 4k + n.
  const std::vector<std::byte> panel = Codes(linear, {1, 2, 1, 2});
  CHECK(panel == Hex("11 15 12 16"));
  REQUIRE(linear.places() != nullptr);
  CHECK(linear.places()->WhereCode(3, 2)[0].bit == 8 * 23);
  CHECK(linear.places()->WhereScale(3, 1)[0].bit == 32 * 7);
  const PanelRange near = linear.places()->CodesNear(23);
  CHECK((near.n0 == 3 && near.rows == 1 && near.k0 == 2 && near.cols == 1));
  CHECK(linear.places()->CodesNear(3).rows == 0);
  CHECK(ZeroPoints(linear, 0, 4) == std::vector<uint8_t>(8, 0));
}

TEST_CASE("experts with weights of their own take their piece of the stacked scales") {
  const TestCheckpoint stored = Fp8SplitExperts();
  CHECK(WeightsOfExpert(stored, "0.gate_proj") == std::vector<float>{1, 1, 3, 1, 1, 3});
  CHECK(WeightsOfExpert(stored, "0.up_proj") == std::vector<float>{2, 2, 4, 2, 2, 4});
  CHECK(WeightsOfExpert(stored, "1.up_proj") == std::vector<float>{6, 6, 8, 6, 6, 8});
  CHECK(WeightsOfExpert(stored, "1.down_proj") == std::vector<float>{5, 5, 5, 5, 6, 6});
}

TEST_CASE("one scale for each stacked expert") {
  for (TestCheckpoint stored : {Fp8Experts(), Fp8ExpertsTransposed(), Fp8SplitExperts()}) {
    stored.config["quantization_config"].erase("weight_block_size");
    for (const std::string name : {"gate_up_proj_scale_inv", "down_proj_scale_inv"}) {
      TestTensor& scale = stored.At(kExperts + name);
      scale.shape = {2};
      scale.bytes = Floats32({3, 4});
    }
    const bool split = stored.tensors.size() > 5;
    CHECK(WeightsOfExpert(stored, split ? "1.up_proj" : "gate_up_proj.1")[5] == 4);
    CHECK(WeightsOfExpert(stored, split ? "0.down_proj" : "down_proj.0")[5] == 3);
  }
}

TEST_CASE("hidden_size tells which way experts lie where there is no other tensor to tell") {
  TestCheckpoint stored = Fp8Experts();
  stored.Remove(kExperts + "down_proj");
  stored.Remove(kExperts + "down_proj_scale_inv");
  stored.config["text_config"] = {{"hidden_size", 3}};
  CHECK(WeightsOfExpert(stored, "gate_up_proj.0").size() == 12);
  stored.At(kExperts + "gate_up_proj_scale_inv").bytes = Floats32({1, 2, 3, 4, 5, 6, 7, 8});
  stored.At(kExperts + "gate_up_proj").shape = {2, 3, 4};
  CHECK(WeightsOfExpert(stored, "gate_up_proj.1") ==
        std::vector<float>{5, 5, 7, 5, 5, 7, 6, 6, 8, 6, 6, 8});
}

TEST_CASE("what is wrong with FP8 experts is said") {
  using T = TestCheckpoint&;
  const auto malformed = ErrorKind::kMalformed;
  const auto unsupported = ErrorKind::kUnsupported;
  const std::vector<FormatDefect> defects = {
      {"no way to tell", Fp8Experts,
       [](T t) {
         t.Remove(kExperts + "down_proj");
         t.Remove(kExperts + "down_proj_scale_inv");
       },
       unsupported, "storage-unsupported",
       "experts.gate_up_proj: it is not clear which dimension of the stacked FP8 experts is the "
       "outputs (found [2, 4, 3]"},
      {"a square one alone", Fp8Experts,
       [](T t) {
         t.Remove(kExperts + "down_proj");
         t.Remove(kExperts + "down_proj_scale_inv");
         t.At(kExperts + "gate_up_proj").shape = {2, 3, 3};
         t.At(kExperts + "gate_up_proj").bytes.resize(18);
         t.config["hidden_size"] = 3;
       },
       unsupported, "storage-unsupported", "is the outputs (found [2, 3, 3]"},
      {"another type", Fp8Experts,
       [](T t) { t.At(kExperts + "gate_up_proj").dtype = "F8_E4M3FNUZ"; }, unsupported,
       "storage-unsupported", "FP8 weights of this type are not supported"},
      {"empty experts", Fp8Experts,
       [](T t) {
         t.At(kExperts + "gate_up_proj").shape = {0, 4, 3};
         t.At(kExperts + "gate_up_proj").bytes.clear();
       },
       malformed, "tensor-shape", "gate_up_proj: the weight is empty"},
      {"too many experts", Fp8Experts,
       [](T t) {
         t.At(kExperts + "down_proj").shape = {8193, 3, 2};
         t.At(kExperts + "down_proj").bytes.resize(8193 * 6, std::byte{0x38});
       },
       unsupported, "storage-unsupported", "too many stacked experts (found [8193, 3, 2]"},
      {"static activations", Fp8Experts,
       [](T t) { t.config["quantization_config"]["activation_scheme"] = "static"; }, unsupported,
       "scheme-unsupported", "static activations of stacked experts are not supported"},
      {"static activations of split experts", Fp8SplitExperts,
       [](T t) { t.config["quantization_config"]["activation_scheme"] = "static"; }, unsupported,
       "scheme-unsupported", "static activations of stacked experts are not supported"},
      {"scales of other blocks", Fp8Experts,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {1, 2};
       },
       malformed, "tensor-shape",
       "down_proj_scale_inv: the shape of the scales contradicts the weight (found [2, 2, 1], "
       "expected [2, 3, 1]"},
      {"transposed scales of other blocks", Fp8ExpertsTransposed,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {1, 2};
       },
       malformed, "tensor-shape", "(found [2, 1, 2], expected [2, 2, 2]"},
      {"scales per channel of transposed experts", Fp8ExpertsTransposed,
       [](T t) {
         t.config["quantization_config"].erase("weight_block_size");
         t.At(kExperts + "down_proj_scale_inv").shape = {2, 1, 3};
         t.At(kExperts + "down_proj_scale_inv").bytes = Floats32({1, 1, 1, 1, 1, 1});
       },
       unsupported, "storage-unsupported",
       "transposed FP8 experts with one scale per channel are not supported (found [2, 1, 3]"},
      {"NaN in the codes of a transposed expert", Fp8ExpertsTransposed,
       [](T t) { t.At(kExperts + "down_proj").bytes[8] = std::byte{0xFF}; }, malformed, "code-nan",
       "an FP8 weight is NaN (found 0xFF at [2, 0]"},
      {"a scale of a transposed expert that is NaN", Fp8ExpertsTransposed,
       [](T t) {
         t.At(kExperts + "down_proj_scale_inv").bytes =
             Hex("00 00 80 3f 00 00 80 3f 00 00 80 3f 00 00 c0 7f");
       },
       malformed, "scale-not-finite", "the scale of channel 2, group 0 is not a finite number"},
      {"a scale of a transposed expert that is zero", Fp8ExpertsTransposed,
       [](T t) {
         t.At(kExperts + "down_proj_scale_inv").bytes = Floats32({1, 0, 1, 1});
       },
       malformed, "scale-zero",
       "the scale of channel 2, group 0 is zero, but the group has weights"},
      {"a block that lies across gate and up", Fp8SplitExperts,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {3, 2};
         t.At(kExperts + "down_proj_scale_inv").shape = {2, 1, 1};
         t.At(kExperts + "down_proj_scale_inv").bytes = Floats32({1, 1});
       },
       unsupported, "storage-unsupported",
       "a block of scales lies across gate and up (found 2 output channels in "
       "blocks of 3"},
      {"stacked scales of another shape", Fp8SplitExperts,
       [](T t) {
         t.config["quantization_config"]["weight_block_size"] = {2, 1};
       },
       malformed, "tensor-shape", "the shape of the scales contradicts the weight"},
      {"stacked scales of fewer experts", Fp8SplitExperts,
       [](T t) {
         t.At(kExperts + "down_proj_scale_inv").shape = {1, 2, 1};
         t.At(kExperts + "down_proj_scale_inv").bytes.resize(8);
       },
       malformed, "tensor-missing", "1.down_proj.weight: the scale of the FP8 weight is missing"},
      {"no stacked scales", Fp8SplitExperts,
       [](T t) { t.Remove(kExperts + "down_proj_scale_inv"); }, malformed, "tensor-missing",
       "0.down_proj.weight: the scale of the FP8 weight is missing"},
      {"divisors", Fp8Experts,
       [](T t) { t.config["quantization_config"]["weight_scale_semantics"] = "inverse"; },
       unsupported, "storage-unsupported",
       "quantized experts stacked in one tensor are not supported"},
  };
  CheckDefects(defects);
}

}  // namespace
}  // namespace prepack::testing
