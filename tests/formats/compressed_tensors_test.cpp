#include <string>
#include <vector>

#include "catch.h"
#include "formats/ct_example.h"
#include "formats/read_helpers.h"
#include "prepack/base/random.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

OpenedModel Open(const TestCheckpoint& stored) {
  const TempFolder folder;  // files stay open, so the names may go
  stored.Write(folder.path());
  return MustOpen(folder.path());
}

// A module of one group per channel with random codes: [n, k] in whole words, F32 scales of 1.
TestCheckpoint ChannelExample(uint64_t n, uint64_t k) {
  SplitMix64 random(n * 1000 + k);
  TestCheckpoint stored = SymmetricExample();
  ExampleWeights(stored)["strategy"] = "channel";
  ExampleWeights(stored)["group_size"] = nullptr;
  const uint64_t words = (k + 7) / 8;
  std::vector<std::byte> packed(n * words * 4);
  for (std::byte& byte : packed) byte = static_cast<std::byte>(random.Below(256));
  std::vector<std::byte> scales;
  for (uint64_t i = 0; i < n; ++i) {
    for (const std::byte byte : Hex("00 00 80 3f")) scales.push_back(byte);
  }
  stored.At(kExampleModule + ".weight_packed") = {
      kExampleModule + ".weight_packed", "I32", {n, words}, packed};
  stored.At(kExampleModule + ".weight_scale") = {
      kExampleModule + ".weight_scale", "F32", {n, 1}, scales};
  stored.At(kExampleModule + ".weight_shape").bytes =
      Int64s({static_cast<int64_t>(n), static_cast<int64_t>(k)});
  return stored;
}

TEST_CASE("the symmetric example of the package reads as it was quantized") {
  const OpenedModel opened = Open(SymmetricExample());
  CHECK(opened.model.findings.empty());
  REQUIRE(opened.model.modules.size() == 1);
  const QuantizedLinear& linear = opened.Module(kExampleModule);
  CHECK(linear.n() == 4);
  CHECK(linear.k() == 16);
  CHECK(linear.groups() == 2);
  CHECK(DescribeScheme(linear.scheme()) == "w4a16 group 8 symmetric");
  CHECK(Codes(linear, {0, 1, 0, 16}) == Hex("10 32 54 76 98 ba dc fe"));
  CHECK(Scales(linear, 0, 4) ==
        std::vector<float>{0.5F, 0.25F, 1.F, 2.F, 0.125F, 0.0625F, 1.5F, 3.F});
  CHECK(ZeroPoints(linear, 0, 4) == std::vector<uint8_t>(8, 8));
  CHECK(Dequantize(linear, 2, 1) ==
        std::vector<float>{0.125F, -0.125F, 0.25F, -0.25F, 0.375F, -0.375F, 0.5F, -0.5F, 0.3125F,
                           -0.3125F, 0.375F, -0.375F, 0.4375F, -0.4375F, 0.F, -0.5F});
}

TEST_CASE("zero points of an embedding are read, though vLLM does not") {
  TestCheckpoint stored = AsymmetricExample();
  stored.config["quantization_config"]["config_groups"]["group_0"]["targets"] = {"Embedding"};
  for (TestTensor& tensor : stored.tensors) {
    if (!tensor.name.starts_with(kExampleModule)) continue;
    tensor.name = "wte" + tensor.name.substr(kExampleModule.size());
  }
  const OpenedModel opened = Open(stored);
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "embedding-zero-points");
  CHECK(opened.model.findings[0].where == "wte");
  CHECK(Dequantize(opened.Module("wte"), 0, 4) ==
        Dequantize(Open(AsymmetricExample()).Module(kExampleModule), 0, 4));
}

TEST_CASE("an embedding that a group means reads like any other module, but for activations") {
  const auto* const target = GENERATE("Embedding", "re:.*embed_tokens$", "model.embed_tokens");
  const OpenedModel linear = Open(SymmetricExample());
  TestCheckpoint stored = SymmetricExample();
  Json& group = stored.config["quantization_config"]["config_groups"]["group_0"];
  group["targets"] = {target};
  group["input_activations"] = {{"strategy", "tensor"}};
  group["output_activations"] = {{"strategy", "tensor"}};
  for (TestTensor& tensor : stored.tensors) {
    if (!tensor.name.starts_with(kExampleModule)) continue;
    tensor.name = "model.embed_tokens" + tensor.name.substr(kExampleModule.size());
  }
  const OpenedModel opened = Open(stored);
  CHECK(opened.model.findings.empty());
  REQUIRE(opened.model.modules.size() == 1);
  const QuantizedLinear& embedding = opened.Module("model.embed_tokens");
  CHECK(embedding.scheme() == linear.Module(kExampleModule).scheme());
  CHECK(Dequantize(embedding, 0, 4) == Dequantize(linear.Module(kExampleModule), 0, 4));
}

TEST_CASE("the asymmetric example of the package reads as it was quantized") {
  const OpenedModel opened = Open(AsymmetricExample());
  CHECK(opened.model.findings.empty());
  const QuantizedLinear& linear = opened.Module(kExampleModule);
  CHECK(DescribeScheme(linear.scheme()) == "w4a16 group 8 asymmetric");
  CHECK(ZeroPoints(linear, 0, 4) == std::vector<uint8_t>{8, 0, 15, 9, 7, 10, 11, 5});
  CHECK(ZeroPoints(linear, 2, 1) == std::vector<uint8_t>{7, 10});
  CHECK(Dequantize(linear, 2, 1) == std::vector<float>{0.25F, 0.F, 0.375F, -0.125F, 0.5F, -0.25F,
                                                       0.625F, -0.375F, 0.1875F, -0.4375F, 0.25F,
                                                       -0.5F, 0.3125F, -0.5625F, -0.125F, -0.625F});
}

TEST_CASE("zero points of more than eight rows lie in several rows of words") {
  TestCheckpoint stored = AsymmetricExample();
  stored.At(kExampleModule + ".weight_packed").shape = {10, 2};
  stored.At(kExampleModule + ".weight_packed").bytes.assign(80, std::byte{0x77});
  stored.At(kExampleModule + ".weight_scale").shape = {10, 2};
  stored.At(kExampleModule + ".weight_scale").bytes.assign(40, std::byte{0x3F});
  stored.At(kExampleModule + ".weight_shape").bytes = Int64s({10, 16});
  stored.At(kExampleModule + ".weight_zero_point").shape = {2, 2};
  stored.At(kExampleModule + ".weight_zero_point").bytes =
      Hex("78 56 34 12  a9 cb ed 0f  f0 00 00 00  21 00 00 00");
  const OpenedModel opened = Open(stored);
  const QuantizedLinear& linear = opened.Module(kExampleModule);
  const std::vector<int> first = {0, -1, -2, -3, -4, -5, -6, -7, -8, 7};
  const std::vector<int> second = {1, 2, 3, 4, 5, 6, 7, -8, -7, -6};
  const std::vector<uint8_t> whole = ZeroPoints(linear, 0, 10);
  for (size_t row = 0; row < 10; ++row) {
    CHECK(whole[2 * row] == first[row] + 8);
    CHECK(whole[2 * row + 1] == second[row] + 8);
    CHECK(ZeroPoints(linear, row, 1) == std::vector<uint8_t>{whole[2 * row], whole[2 * row + 1]});
  }
  CHECK(ZeroPoints(linear, 7, 2) == std::vector<uint8_t>(whole.begin() + 14, whole.begin() + 18));
}

TEST_CASE("zero points before 0.9.4 are signed bytes") {
  TestCheckpoint stored = AsymmetricExample();
  stored.config["quantization_config"]["version"] = "0.9.3";
  stored.At(kExampleModule + ".weight_zero_point") = {
      kExampleModule + ".weight_zero_point", "I8", {4, 2}, Hex("00 f8 07 01 ff 02 03 fd")};
  const OpenedModel opened = Open(stored);
  CHECK(ZeroPoints(opened.Module(kExampleModule), 0, 4) ==
        std::vector<uint8_t>{8, 0, 15, 9, 7, 10, 11, 5});
}

TEST_CASE("rows that end inside a word are stripped of their padding") {
  TestCheckpoint stored = ChannelExample(1, 12);
  // Codes 0 … 11, then four nibbles of padding.
  stored.At(kExampleModule + ".weight_packed").bytes = Hex("10 32 54 76 98 ba 00 00");
  const OpenedModel opened = Open(stored);
  const QuantizedLinear& linear = opened.Module(kExampleModule);
  CHECK(linear.k() == 12);
  CHECK(linear.groups() == 1);
  CHECK(Codes(linear) == Hex("10 32 54 76 98 ba"));
}

TEST_CASE("panels of any split give the codes of a whole read") {
  for (const uint64_t k : {7U, 8U, 12U, 16U, 31U, 32U, 50U}) {
    const OpenedModel opened = Open(ChannelExample(5, k));
    const QuantizedLinear& linear = opened.Module(kExampleModule);
    const std::vector<std::byte> whole = Codes(linear);
    for (const uint64_t rows : {1U, 2U, 3U, 5U}) {
      for (const uint64_t cols : {uint64_t{2}, uint64_t{6}, uint64_t{16}, k}) {
        for (uint64_t n0 = 0; n0 < 5; n0 += rows) {
          for (uint64_t k0 = 0; k0 < k; k0 += cols) {
            const PanelRange range{n0, std::min(rows, 5 - n0), k0, std::min(cols, k - k0)};
            const std::vector<std::byte> panel = Codes(linear, range);
            CAPTURE(k, n0, k0, range.rows, range.cols);
            for (uint64_t row = 0; row < range.rows; ++row) {
              for (uint64_t col = 0; col < range.cols; ++col) {
                REQUIRE(PanelCode(CodeType::kU4, panel, range.cols, row, col) ==
                        PanelCode(CodeType::kU4, whole, k, n0 + row, k0 + col));
              }
              if (range.cols % 2 != 0) {
                // The unused half of the last byte is zero, whatever the file holds.
                CHECK(std::to_integer<int>(
                          panel[(row + 1) * PanelRowBytes(CodeType::kU4, range.cols) - 1] >> 4) ==
                      0);
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("ranges outside the module are refused, not read") {
  const OpenedModel opened = Open(SymmetricExample());
  const QuantizedLinear& linear = opened.Module(kExampleModule);
  std::vector<std::byte> codes(64);
  for (const PanelRange& range :
       {PanelRange{0, 5, 0, 16}, PanelRange{4, 1, 0, 16}, PanelRange{0, 1, 16, 2},
        PanelRange{0, 1, 1, 2}, PanelRange{0, 1, 0, 3}, PanelRange{~0ULL, 1, 0, 2},
        PanelRange{0, 1, ~0ULL - 1, 2}}) {
    CheckError(linear.ReadCodes(range, std::span(codes).first(2)), ErrorKind::kUsage,
               "the panel does not fit the module");
  }
  CheckError(linear.ReadCodes({0, 1, 0, 16}, std::span(codes).first(7)), ErrorKind::kUsage,
             "7 bytes");
  std::vector<float> scales(2);
  CheckError(linear.ReadScales(4, 1, scales), ErrorKind::kUsage, "the rows do not fit");
  CheckError(linear.ReadScales(0, 2, scales), ErrorKind::kUsage, "the rows do not fit");
  std::vector<uint8_t> zero_points(2);
  CheckError(linear.ReadZeroPoints(~0ULL, 1, zero_points), ErrorKind::kUsage, "do not fit");
}

TEST_CASE("scales of every dtype are widened exactly, negative ones too") {
  struct Case {
    std::string dtype;
    std::string bytes;
  };
  for (const Case& c : {Case{"BF16", "00 bf 80 3e 80 3f 00 40 00 3e 80 3d c0 3f 40 40"},
                        Case{"F16", "00 b8 00 34 00 3c 00 40 00 30 00 2c 00 3e 00 42"},
                        Case{"F32",
                             "00 00 00 bf 00 00 80 3e 00 00 80 3f 00 00 00 40"
                             "00 00 00 3e 00 00 80 3d 00 00 c0 3f 00 00 40 40"}}) {
    TestCheckpoint stored = SymmetricExample();
    stored.At(kExampleModule + ".weight_scale").dtype = c.dtype;
    stored.At(kExampleModule + ".weight_scale").bytes = Hex(c.bytes);
    const OpenedModel opened = Open(stored);
    CAPTURE(c.dtype);
    CHECK(Scales(opened.Module(kExampleModule), 0, 4) ==
          std::vector<float>{-0.5F, 0.25F, 1.F, 2.F, 0.125F, 0.0625F, 1.5F, 3.F});
    CHECK(DTypeName(opened.Module(kExampleModule).stored_scale_dtype()) == c.dtype);
  }
}

TEST_CASE("zero points that a symmetric module must not have are noticed with the scales") {
  TestCheckpoint stored = AsymmetricExample();
  ExampleWeights(stored)["symmetric"] = true;
  const OpenedModel opened = Open(stored);
  std::vector<float> scales(8);
  CheckError(opened.Module(kExampleModule).ReadScales(0, 4, scales), ErrorKind::kMalformed,
             "the scheme is symmetric, but a zero point is not zero (found -8 at [0, 1])");
}

TEST_CASE("a zero scale is accepted where the weights are zero whatever the scale") {
  TestCheckpoint stored = SymmetricExample();
  std::vector<std::byte>& scales = stored.At(kExampleModule + ".weight_scale").bytes;
  scales[12] = scales[13] = std::byte{0};  // [3, 0]: all codes of row 3 are 8
  const OpenedModel opened = Open(stored);
  CHECK(Scales(opened.Module(kExampleModule), 3, 1) == std::vector<float>{0.F, 3.F});
}

TEST_CASE("a zero scale is judged by the codes of its group alone, wherever that begins") {
  const auto read = [](const std::string& codes) {
    TestCheckpoint stored = SymmetricExample();
    ExampleWeights(stored)["group_size"] = 5;  // group 1 is inputs 5 to 9
    stored.At(kExampleModule + ".weight_packed").shape = {1, 2};
    stored.At(kExampleModule + ".weight_packed").bytes = Hex(codes);
    stored.At(kExampleModule + ".weight_scale").shape = {1, 3};
    stored.At(kExampleModule + ".weight_scale").bytes = Hex("80 3f 00 00 80 3f");
    stored.At(kExampleModule + ".weight_shape").bytes = Int64s({1, 15});
    const OpenedModel opened = Open(stored);
    std::vector<float> scales(3);
    return opened.Module(kExampleModule).ReadScales(0, 1, scales);
  };
  RequireOk(read("11 11 81 88 88 11 11 01"));
  CheckError(read("11 11 11 88 88 11 11 01"), ErrorKind::kMalformed, "found code 1 at [0, 5]");
  CheckError(read("11 11 81 88 18 11 11 01"), ErrorKind::kMalformed, "found code 1 at [0, 9]");
}

TEST_CASE("the tensors of a module may lie in different shards") {
  TestCheckpoint stored = AsymmetricExample();
  for (size_t i = 0; i < stored.tensors.size(); ++i) stored.tensors[i].shard = i % 3;
  const OpenedModel sharded = Open(stored);
  const OpenedModel whole = Open(AsymmetricExample());
  REQUIRE(sharded.checkpoint->files().size() == 3);
  CHECK(Dequantize(sharded.Module(kExampleModule), 0, 4) ==
        Dequantize(whole.Module(kExampleModule), 0, 4));
}

TEST_CASE("modules come in the order of their names, each with its own group") {
  TestCheckpoint stored = SymmetricExample();
  for (const std::string name : {"a.b", "a.b-c", "a.b.c"}) {
    for (size_t i = 0; i < 3; ++i) {
      TestTensor tensor = stored.tensors[i];
      tensor.name = name + tensor.name.substr(kExampleModule.size());
      stored.tensors.push_back(tensor);
    }
  }
  const OpenedModel opened = Open(stored);
  std::vector<std::string> names;
  for (const auto& module : opened.model.modules) names.emplace_back(module->module());
  CHECK(names == std::vector<std::string>{"a.b", "a.b-c", "a.b.c", kExampleModule});
  CHECK(opened.Module("a.b").source_tensors() ==
        std::vector<std::string_view>{"a.b.weight_packed", "a.b.weight_scale", "a.b.weight_shape"});
}

}  // namespace
}  // namespace prepack::testing
