// Quark's integers: what reads, and what is refused.

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

Json& IntegerWeightOf(TestCheckpoint& stored) {
  return stored.config["quantization_config"]["global_quant_config"]["weight"];
}

// int4 of N = 8 and K = 2 in one group: channel n has the codes n − 8 and n − 8, scale 1.
TestCheckpoint QuarkInt4() {
  TestCheckpoint stored;
  stored.config = {{"quantization_config",
                    {{"quant_method", "quark"},
                     {"export", {{"pack_method", "order"}, {"weight_format", "real_quantized"}}},
                     {"global_quant_config",
                      {{"weight",
                        {{"dtype", "int4"},
                         {"qscheme", "per_group"},
                         {"ch_axis", -1},
                         {"group_size", 2},
                         {"symmetric", true}}}}}}}};
  stored.tensors = {
      {kFp8Module + ".weight", "I32", {2, 1}, Hex("98 ba dc fe 98 ba dc fe")},
      {kFp8Module + ".weight_scale", "F32", {1, 8}, Floats32({1, 1, 1, 1, 1, 1, 1, 1})},
      {kFp8Module + ".weight_zero_point", "I32", {1, 1}, Hex("00 00 00 00")},
      {"model.norm.weight", "BF16", {1}, Hex("80 3f")},
  };
  return stored;
}

// uint8 of N = 2 and K = 3 with one scale and one zero point.
TestCheckpoint QuarkUint8() {
  TestCheckpoint stored = QuarkInt4();
  IntegerWeightOf(stored) = {{"dtype", "uint8"}, {"qscheme", "per_tensor"}, {"symmetric", false}};
  stored.At(kFp8Module + ".weight") = {
      kFp8Module + ".weight", "U8", {2, 3}, Hex("00 01 02 80 fe ff")};
  stored.At(kFp8Module + ".weight_scale") = {
      kFp8Module + ".weight_scale", "F32", {}, Floats32({0.5F})};
  stored.At(kFp8Module + ".weight_zero_point") = {
      kFp8Module + ".weight_zero_point", "U8", {}, Hex("80")};
  return stored;
}

Json& InputOf(TestCheckpoint& stored) {
  return stored.config["quantization_config"]["global_quant_config"]["input_tensors"];
}

// The same with static activations of such bytes.
TestCheckpoint StaticUint8Inputs() {
  TestCheckpoint stored = QuarkUint8();
  InputOf(stored) = {{"dtype", "uint8"}, {"qscheme", "per_tensor"}, {"symmetric", false}};
  stored.tensors.push_back({kFp8Module + ".input_scale", "F32", {}, Floats32({0.25F})});
  stored.tensors.push_back({kFp8Module + ".input_zero_point", "U8", {}, Hex("7e")});
  return stored;
}

std::vector<float> WeightsOf(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.findings.empty());
  const QuantizedLinear& module = opened.Module(kFp8Module);
  return Dequantize(module, 0, module.n());
}

TEST_CASE("the nibbles of a word are channels in order, or in AWQ's") {
  TestCheckpoint stored = QuarkInt4();
  const std::vector<float> in_order = {-8, -8, -7, -7, -6, -6, -5, -5,
                                       -4, -4, -3, -3, -2, -2, -1, -1};
  CHECK(WeightsOf(stored) == in_order);
  Json& exported = stored.config["quantization_config"]["export"];
  SECTION("in AWQ's where the config says so") {
    exported["pack_method"] = "reorder";
  }
  SECTION("and where it says nothing") {
    exported.erase("pack_method");
  }
  // Nibbles 0, 4, 1, 5, 2, 6, 3, 7 of 0xFEDCBA98.
  CHECK(WeightsOf(stored) ==
        std::vector<float>{-8, -8, -4, -4, -7, -7, -3, -3, -6, -6, -2, -2, -5, -5, -1, -1});
}

TEST_CASE("zero points of signed codes are signed, and belong to their group") {
  TestCheckpoint stored = QuarkInt4();
  IntegerWeightOf(stored)["symmetric"] = false;
  stored.At(kFp8Module + ".weight_zero_point").bytes = Hex("f1 00 00 00");  // 1, −1, 0 …
  const std::vector<float> weights = WeightsOf(stored);
  CHECK(std::vector<float>(weights.begin(), weights.begin() + 6) ==
        std::vector<float>{-9, -9, -6, -6, -6, -6});
}

TEST_CASE("unsigned bytes have the zero point that is stored, also where Quark says symmetric") {
  TestCheckpoint stored = QuarkUint8();
  const std::vector<float> expected = {-64, -63.5, -63, 0, 63, 63.5};
  CHECK(WeightsOf(stored) == expected);
  IntegerWeightOf(stored)["symmetric"] = true;
  CHECK(WeightsOf(stored) == expected);
}

TEST_CASE("4 bits with one scale have it for every channel") {
  TestCheckpoint stored = QuarkInt4();
  IntegerWeightOf(stored) = {{"dtype", "int4"}, {"qscheme", "per_tensor"}, {"symmetric", false}};
  stored.At(kFp8Module + ".weight") = {
      kFp8Module + ".weight", "I32", {2, 1}, Hex("98 ba dc fe 10 32 54 76")};
  stored.At(kFp8Module + ".weight_scale") = {
      kFp8Module + ".weight_scale", "F32", {}, Floats32({2})};
  stored.At(kFp8Module + ".weight_zero_point") = {
      kFp8Module + ".weight_zero_point", "I32", {}, Hex("ff ff ff ff")};  // −1
  CHECK(WeightsOf(stored) ==
        std::vector<float>{-14, -12, -10, -8, -6, -4, -2, 0, 2, 4, 6, 8, 10, 12, 14, 16});
}

TEST_CASE("the last word of a line may be padded to channels that are not there") {
  TestCheckpoint groups = QuarkInt4();
  groups.At(kFp8Module + ".weight_scale") = {
      kFp8Module + ".weight_scale", "F32", {2, 5}, Floats32({1, 1, 1, 1, 1, 2, 2, 2, 2, 2})};
  IntegerWeightOf(groups)["group_size"] = 1;
  IntegerWeightOf(groups)["symmetric"] = false;
  groups.At(kFp8Module + ".weight_zero_point") = {
      kFp8Module + ".weight_zero_point", "I32", {2, 1}, Hex("10 00 00 00 00 00 01 00")};
  CHECK(WeightsOf(groups) == std::vector<float>{-8, -16, -8, -14, -6, -12, -5, -10, -4, -10});
  TestCheckpoint channels = QuarkInt4();
  IntegerWeightOf(channels) = {
      {"dtype", "uint4"}, {"qscheme", "per_channel"}, {"ch_axis", 0}, {"symmetric", false}};
  channels.At(kFp8Module + ".weight") = {
      kFp8Module + ".weight", "I32", {2, 1}, Hex("00 00 00 00 11 11 11 11")};
  channels.At(kFp8Module + ".weight_scale") = {
      kFp8Module + ".weight_scale", "F32", {2}, Floats32({1, 2})};
  channels.At(kFp8Module + ".weight_zero_point") = {
      kFp8Module + ".weight_zero_point", "I32", {1}, Hex("31 00 00 00")};
  CHECK(WeightsOf(channels) ==
        std::vector<float>{-1, -1, -1, -1, -1, -1, -1, -1, -4, -4, -4, -4, -4, -4, -4, -4});
}

TEST_CASE("groups of bytes lie by output channel in the first versions") {
  TestCheckpoint stored = QuarkUint8();
  IntegerWeightOf(stored) = {{"dtype", "uint8"},
                             {"qscheme", "per_group"},
                             {"ch_axis", 1},
                             {"group_size", 2},
                             {"symmetric", false}};
  const auto store = [&](const std::vector<uint64_t>& scales, const std::string& zeros) {
    stored.At(kFp8Module + ".weight") = {
        kFp8Module + ".weight", "U8", {4, 4}, Hex("00010203 10111213 20212223 30313233")};
    stored.At(kFp8Module + ".weight_scale") = {kFp8Module + ".weight_scale", "F32", scales,
                                               Floats32({1, 2, 3, 4, 5, 6, 7, 8})};
    stored.At(kFp8Module + ".weight_zero_point") = {kFp8Module + ".weight_zero_point", "U8", scales,
                                                    Hex(zeros)};
  };
  store({4, 2}, "00 01 00 00 00 00 00 20");
  CHECK(WeightsOf(stored) ==
        std::vector<float>{0, 1, 2, 4, 48, 51, 72, 76, 160, 165, 204, 210, 336, 343, 144, 152});
  store({2, 4}, "00 00 00 00 10 00 00 00");
  CHECK(WeightsOf(stored) ==
        std::vector<float>{0, 16, 80, 160, 2, 34, 198, 294, 6, 54, 238, 350, 12, 76, 280, 408});
}

TEST_CASE("unsigned activations are delivered as signed ones") {
  const auto module_of = [](const TestCheckpoint& stored, const auto& check) {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    check(opened.Module(kFp8Module));
  };
  TestCheckpoint stored = StaticUint8Inputs();
  module_of(stored, [](const QuantizedLinear& module) {
    CHECK(module.input() == InputQuantization{.scale = 0.25F, .zero_point = -2});
    CHECK(DescribeActivations(module.scheme().activations) ==
          "8-bit int per tensor static asymmetric");
  });
  // What Quark calls symmetric has the zero point 0.
  InputOf(stored)["symmetric"] = true;
  stored.At(kFp8Module + ".input_zero_point").bytes = Hex("00");
  module_of(stored, [](const QuantizedLinear& module) {
    CHECK(module.input() == InputQuantization{.scale = 0.25F, .zero_point = -128});
  });
  InputOf(stored) = {{"dtype", "uint8"},
                     {"qscheme", "per_channel"},
                     {"ch_axis", 1},
                     {"is_dynamic", true},
                     {"symmetric", false}};
  module_of(stored, [](const QuantizedLinear& module) {
    CHECK(DescribeActivations(module.scheme().activations) ==
          "8-bit int per token dynamic asymmetric");
  });
}

TEST_CASE("integers of Quark that cannot be read") {
  using T = TestCheckpoint&;
  const std::vector<FormatDefect> defects = {
      {"another dtype", QuarkUint8, [](T t) { t.At(kFp8Module + ".weight").dtype = "I8"; },
       kMalformed, "tensor-dtype", "mlp.up_proj.weight"},
      {"a vector", QuarkInt4, [](T t) { t.At(kFp8Module + ".weight").shape = {2}; }, kUnsupported,
       "tensor-shape", "the weight is not a matrix (found [2]"},
      {"a group that does not fit", QuarkInt4, [](T t) { IntegerWeightOf(t)["group_size"] = 3; },
       kMalformed, "group-size-mismatch",
       "the group size does not divide the input channels (found K = 2, groups of 3"},
      {"no scales", QuarkInt4, [](T t) { t.Remove(kFp8Module + ".weight_scale"); }, kMalformed,
       "module-foreign", "mlp.up_proj"},
      {"scales of another group size", QuarkInt4, [](T t) { IntegerWeightOf(t)["group_size"] = 1; },
       kMalformed, "tensor-shape", "weight_scale"},
      {"scales that are codes", QuarkInt4,
       [](T t) { t.At(kFp8Module + ".weight_scale").dtype = "I32"; }, kMalformed, "tensor-dtype",
       "weight_scale"},
      {"a zero scale", QuarkInt4,
       [](T t) {
         t.At(kFp8Module + ".weight_scale").bytes = Floats32({1, 1, 0, 1, 1, 1, 1, 1});
       },
       kMalformed, "scale-zero", "weight_scale"},
      {"zero points that are bytes", QuarkInt4,
       [](T t) {
         t.At(kFp8Module + ".weight_zero_point") = {
             kFp8Module + ".weight_zero_point", "I8", {1, 1}, Hex("00")};
       },
       kMalformed, "tensor-dtype", "weight_zero_point"},
      {"a zero point of a symmetric group", QuarkInt4,
       [](T t) { t.At(kFp8Module + ".weight_zero_point").bytes = Hex("00 10 00 00"); }, kMalformed,
       "zero-point-not-symmetric",
       "the config says that zero points are symmetric, but they are not all 0 (found 1 at channel "
       "3, group 0; 0 to 1 in these rows, expected 0 throughout). Either the config or the tensor "
       "is wrong"},
      {"no zero points", QuarkUint8, [](T t) { t.Remove(kFp8Module + ".weight_zero_point"); },
       kMalformed, "tensor-missing", "weight_zero_point is missing, but the scheme is asymmetric"},
      {"a zero point of symmetric bytes", QuarkUint8,
       [](T t) {
         IntegerWeightOf(t) = {{"dtype", "int8"}, {"qscheme", "per_tensor"}, {"symmetric", true}};
         t.At(kFp8Module + ".weight").dtype = "I8";
         t.At(kFp8Module + ".weight_zero_point").dtype = "I8";
       },
       kMalformed, "zero-point-not-symmetric",
       "the scheme is symmetric, but a zero point is not zero (found 128 at channel 0, group 0"},
      {"zero points in floating point", QuarkUint8,
       [](T t) { IntegerWeightOf(t)["zero_point_type"] = "float32"; }, kUnsupported,
       "scheme-unsupported",
       "(found uint8 per_tensor with zero points in floating point, expected int4"},
      {"channels that are inputs", QuarkUint8,
       [](T t) {
         IntegerWeightOf(t)["qscheme"] = "per_channel";
         IntegerWeightOf(t)["ch_axis"] = 1;
       },
       kUnsupported, "scheme-unsupported", "(found uint8 per_channel of the inputs, expected int4"},
      {"inputs that are rotated", QuarkInt4,
       [](T t) {
         AddZeros(t, kFp8Module + ".input_rotation", "I8", {2, 2}, 4);
       },
       kUnsupported, "rotation", "the module rotates its inputs at run time (found input_rotation"},
      {"an unknown order of nibbles", QuarkInt4,
       [](T t) { t.config["quantization_config"]["export"]["pack_method"] = "sorted"; },
       kUnsupported, "storage-unsupported",
       "export.pack_method: unknown order of nibbles (found \"sorted\", expected \"reorder\" or "
       "\"order\""},
      {"static activations without a scale", QuarkUint8,
       [](T t) {
         InputOf(t) = {{"dtype", "int8"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}};
       },
       kMalformed, "input-missing", "input_scale is missing"},
      {"unsigned activations that clip", QuarkUint8,
       [](T t) {
         InputOf(t) = {{"dtype", "uint8"}, {"qscheme", "per_tensor"}, {"is_dynamic", true}};
       },
       kUnsupported, "scheme-unsupported",
       "activations of this kind are not supported with integer weights (found uint8 per_tensor, "
       "dynamic, symmetric"},
      {"a zero point of signed activations that is not", StaticUint8Inputs,
       [](T t) { InputOf(t)["dtype"] = "int8"; }, kMalformed, "tensor-dtype", "input_zero_point"},
      {"weights that are quantized at run time", QuarkUint8,
       [](T t) { IntegerWeightOf(t)["is_dynamic"] = true; }, kUnsupported, "scheme-unsupported",
       "(found uint8 per_tensor, quantized at run time, expected int4"},
      {"a zero point that the first versions lost", QuarkInt4,
       [](T t) {
         IntegerWeightOf(t) = {{"dtype", "uint4"}, {"qscheme", "per_tensor"}, {"symmetric", false}};
         t.At(kFp8Module + ".weight_scale") = {
             kFp8Module + ".weight_scale", "F32", {1}, Floats32({1})};
         t.At(kFp8Module + ".weight_zero_point") = {
             kFp8Module + ".weight_zero_point", "I32", {0}, {}};
       },
       kMalformed, "tensor-shape",
       "weight_zero_point: the zero point was not stored (found [0], expected one). Quark 0.6 lost "
       "it"},
      {"words that are too many", QuarkInt4,
       [](T t) {
         t.At(kFp8Module + ".weight").shape = {2, 2};
         t.At(kFp8Module + ".weight").bytes.resize(16);
       },
       kMalformed, "tensor-shape", "weight_scale"},
  };
  CheckDefects(defects);
}

}  // namespace
}  // namespace prepack::testing
