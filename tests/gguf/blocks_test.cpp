#include "prepack/gguf/blocks.h"

#include <bit>
#include <cmath>
#include <set>

#include "catch.h"
#include "prepack/gguf/model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using gguf::GgmlType;

std::vector<std::byte> BytesOfTensor(const gguf::Model& model, const gguf::Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  RequireOk(model.Visit(tensor, 0, tensor.bytes, [&](const std::byte* stored) {
    std::copy_n(stored, bytes.size(), bytes.data());
  }));
  return bytes;
}

// Bit for bit, but for NaN and for the sign of zero in formats that have neither.
size_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return i;
  }
  return a.size();
}

TEST_CASE("blocks are decoded as the Python package gguf decodes them") {
  const gguf::Model blocks = Value(gguf::Model::Open(Fixture("gguf/blocks.gguf")));
  const gguf::Model truth = Value(gguf::Model::Open(Fixture("gguf/truth.gguf")));
  std::set<std::string_view> seen;
  for (const gguf::Tensor& tensor : blocks.tensors()) {
    INFO(tensor.name);
    REQUIRE(gguf::IsDecoded(tensor.type));
    const gguf::Tensor* expected = truth.FindTensor(tensor.name);
    REQUIRE(expected != nullptr);
    REQUIRE(expected->dims == tensor.dims);
    std::vector<float> weights(2048);
    std::vector<float> wanted(2048);
    gguf::Dequantize(tensor.type, BytesOfTensor(blocks, tensor), weights);
    gguf::Dequantize(GgmlType::kF32, BytesOfTensor(truth, *expected), wanted);
    CHECK(FirstDifference(weights, wanted) == wanted.size());
    seen.insert(gguf::InfoOf(tensor.type).name);
  }
  CHECK(seen == std::set<std::string_view>{"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                           "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4",
                                           "NVFP4"});
}

// What the package says of block lengths and bytes: GGML_QUANT_SIZES.
TEST_CASE("the table of ggml's types") {
  struct Row {
    uint32_t number;
    std::string_view name;
    uint32_t block;
    uint32_t bytes;
  };
  const auto rows = std::to_array<Row>({
      {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
      {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
      {8, "Q8_0", 32, 34},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
      {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
      {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98},
      {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
      {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},
      {25, "I16", 1, 2},        {26, "I32", 1, 4},        {27, "I64", 1, 8},
      {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},
      {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
      {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},
  });
  REQUIRE(gguf::AllGgmlTypes().size() == rows.size());
  for (const Row& row : rows) {
    INFO(row.name);
    const gguf::GgmlTypeInfo* info = gguf::FindGgmlType(row.number);
    REQUIRE(info != nullptr);
    CHECK(info->name == row.name);
    CHECK(info->block == row.block);
    CHECK(info->bytes == row.bytes);
    CHECK(gguf::FindGgmlType(row.name) == info);
    for (const uint32_t offset : info->scale_offsets) CHECK(offset < row.bytes);
  }
  CHECK(gguf::FindGgmlType("Q9_Z") == nullptr);
  CHECK(gguf::InfoOf(GgmlType::kQ4_0).BitsPerWeight() == 4.5);
}

TEST_CASE("a block comes apart into codes, scales and a minimum") {
  std::vector<std::byte> bytes(20);
  bytes[1] = std::byte{0x3C};  // 1 in f16
  bytes[3] = std::byte{0xC0};  // -2
  bytes[4] = std::byte{0xF1};
  const gguf::Block block = gguf::DecodeBlock(GgmlType::kQ4_1, bytes.data());
  CHECK(block.group == 32);
  CHECK(block.scales[0] == 1);
  CHECK(block.minima[0] == -2);
  CHECK(block.codes[0] == 1);
  CHECK(block.codes[16] == 15);
  // E2M1 of 1.5, and its negative zero, which ggml does not know.
  CHECK(gguf::CodeValue(GgmlType::kMXFP4, 3) == 3);
  CHECK_FALSE(std::signbit(gguf::CodeValue(GgmlType::kNVFP4, 8)));
  CHECK(gguf::CodeValue(GgmlType::kQ8_0, -128) == -128);
  CHECK_FALSE(gguf::IsDecoded(GgmlType::kIQ4_XS));
  CHECK_FALSE(gguf::IsDecoded(GgmlType::kTQ2_0));
  CHECK(gguf::HasMinima(GgmlType::kQ2_K));
  CHECK_FALSE(gguf::HasMinima(GgmlType::kQ3_K));
  CHECK_FALSE(gguf::HasCodes(GgmlType::kBF16));
}

}  // namespace
}  // namespace prepack::testing
