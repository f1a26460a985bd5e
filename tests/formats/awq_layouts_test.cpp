// The three layouts against a naive packer, and against bytes that the real packers made.

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/awq_example.h"
#include "formats/read_helpers.h"
#include "prepack/base/random.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// The panel that a reader must deliver.
std::vector<std::byte> ExpectedPanel(const AwqNumbers& m, const PanelRange& range) {
  const size_t row_bytes = PanelRowBytes(CodeType::kU4, range.cols);
  std::vector<std::byte> panel(range.rows * row_bytes);
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t col = 0; col < range.cols; ++col) {
      const unsigned code = m.codes[(range.n0 + row) * m.k + range.k0 + col];
      panel[row * row_bytes + col / 2] |= static_cast<std::byte>(col % 2 == 0 ? code : code << 4);
    }
  }
  return panel;
}

// The same by input channel.
std::vector<std::byte> ExpectedColumns(const AwqNumbers& m, const PanelRange& range) {
  std::vector<std::byte> columns(range.cols * range.rows / 2);
  for (uint64_t col = 0; col < range.cols; ++col) {
    for (uint64_t row = 0; row < range.rows; ++row) {
      const unsigned code = m.codes[(range.n0 + row) * m.k + range.k0 + col];
      columns[col * range.rows / 2 + row / 2] |= static_cast<std::byte>(code << row % 2 * 4);
    }
  }
  return columns;
}

void CheckColumns(const QuantizedLinear& linear, const AwqNumbers& m, const PanelRange& range) {
  CAPTURE(range.n0, range.rows, range.k0, range.cols);
  REQUIRE(linear.HasColumns(range));
  std::vector<std::byte> columns(range.cols * range.rows / 2, std::byte{0xA5});
  RequireOk(linear.ReadColumns(range, columns));
  CHECK(columns == ExpectedColumns(m, range));
}

void CheckModule(const QuantizedLinear& linear, const AwqNumbers& m, SplitMix64& random) {
  REQUIRE(linear.n() == m.n);
  REQUIRE(linear.k() == m.k);
  REQUIRE(linear.groups() == m.groups());
  CHECK(Codes(linear) == ExpectedPanel(m, {0, m.n, 0, m.k}));
  for (int i = 0; i < 12; ++i) {
    PanelRange range;
    range.n0 = random.Below(m.n);
    range.rows = 1 + random.Below(m.n - range.n0);
    range.k0 = random.Below(m.k) / 2 * 2;
    range.cols = 1 + random.Below(m.k - range.k0);
    if (range.cols % 2 != 0 && range.k0 + range.cols != m.k) ++range.cols;
    CAPTURE(range.n0, range.rows, range.k0, range.cols);
    CHECK(Codes(linear, range) == ExpectedPanel(m, range));
  }
  const uint64_t n0 = random.Below(m.n);
  const uint64_t rows = 1 + random.Below(m.n - n0);
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  for (uint64_t i = n0 * m.groups(); i < (n0 + rows) * m.groups(); ++i) {
    scales.push_back(F16ToF32(m.scales[i]));
    zero_points.push_back(m.zero_points[i]);
  }
  CHECK(Scales(linear, n0, rows) == scales);
  CHECK(ZeroPoints(linear, n0, rows) == zero_points);
}

TEST_CASE("AWQ gemm modules of any shape read as they were packed, whole and in panels") {
  SplitMix64 random(1);
  // K of 1200 and more makes a panel of two tiles, N above 8192 one that is read row by row.
  const std::vector<AwqNumbers> shapes = {
      {8, 15, 15},  {8, 16, 8},    {24, 64, 32},   {40, 130, 26},  {64, 128, 128},
      {32, 66, 66}, {8, 1200, 80}, {200, 192, 96}, {8200, 66, 33}, {16, 2048, 512}};
  for (const AwqNumbers& shape : shapes) {
    CAPTURE(shape.n, shape.k, shape.group_size);
    const AwqNumbers m = RandomAwqNumbers(shape.n, shape.k, shape.group_size, random);
    const TempFolder folder;
    AwqCheckpoint(AwqGemmTensors(kAwqModule, m), "GEMM", m.group_size).Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(opened.model.format == "awq");
    CHECK(opened.model.findings.empty());
    const QuantizedLinear& linear = opened.Module(kAwqModule);
    CHECK(DescribeScheme(linear.scheme()) ==
          (m.groups() == 1 ? "w4a16 channel asymmetric"
                           : "w4a16 group " + std::to_string(m.group_size) + " asymmetric"));
    CHECK(linear.stored_scale_dtype() == DType::kF16);
    CheckModule(linear, m, random);
  }
}

TEST_CASE(
    "AWQ gemm modules can be read by input channel, where eight output channels go together") {
  SplitMix64 random(6);
  const AwqNumbers m = RandomAwqNumbers(200, 192, 96, random);
  const TempFolder folder;
  AwqCheckpoint(AwqGemmTensors(kAwqModule, m), "GEMM", m.group_size).Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kAwqModule);
  CheckColumns(linear, m, {.n0 = 0, .rows = m.n, .k0 = 0, .cols = m.k});
  CheckColumns(linear, m, {.n0 = 8, .rows = 0, .k0 = 0, .cols = m.k});
  for (int i = 0; i < 12; ++i) {
    PanelRange range;
    range.n0 = random.Below(m.n / 8) * 8;
    range.rows = (1 + random.Below((m.n - range.n0) / 8)) * 8;
    range.k0 = random.Below(m.k / 2) * 2;
    range.cols = (1 + random.Below((m.k - range.k0) / 2)) * 2;
    CheckColumns(linear, m, range);
  }

  std::vector<std::byte> columns(m.n * m.k / 2);
  const PanelRange odd{.n0 = 4, .rows = 8, .k0 = 0, .cols = 2};
  CHECK_FALSE(linear.HasColumns(odd));
  CheckError(linear.ReadColumns(odd, std::span(columns).first(8)), ErrorKind::kUsage,
             "does not store its codes by input channel");
  CHECK_FALSE(linear.HasColumns({.n0 = 0, .rows = 4, .k0 = 0, .cols = 2}));
  const PanelRange outside{.n0 = 200, .rows = 8, .k0 = 0, .cols = 2};
  CheckError(linear.ReadColumns(outside, std::span(columns).first(8)), ErrorKind::kUsage,
             "does not fit");
}

TEST_CASE("AWQ gemv modules read as they were packed, whole and in panels") {
  SplitMix64 random(2);
  const std::vector<AwqNumbers> shapes = {{1, 32, 32},   {3, 512, 32},  {17, 512, 64},
                                          {8, 512, 128}, {5, 1280, 64}, {4, 2560, 256}};
  for (const AwqNumbers& shape : shapes) {
    CAPTURE(shape.n, shape.k, shape.group_size);
    const AwqNumbers m = RandomAwqNumbers(shape.n, shape.k, shape.group_size, random);
    const TempFolder folder;
    AwqCheckpoint(AwqGemvTensors(kAwqModule, m), "gemv", m.group_size).Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(opened.model.findings.empty());
    CheckModule(opened.Module(kAwqModule), m, random);
    CHECK_FALSE(opened.Module(kAwqModule).HasColumns({.n0 = 0, .rows = 8, .k0 = 0, .cols = 8}));
  }
}

TEST_CASE("AWQ gemv_fast modules read as they were packed, whole and in panels") {
  SplitMix64 random(3);
  const std::vector<AwqNumbers> shapes = {
      {8, 64, 32}, {16, 128, 64}, {8, 512, 128}, {24, 640, 64}, {40, 256, 256}};
  for (const AwqNumbers& shape : shapes) {
    CAPTURE(shape.n, shape.k, shape.group_size);
    const AwqNumbers m = RandomAwqNumbers(shape.n, shape.k, shape.group_size, random);
    const TempFolder folder;
    TestCheckpoint stored =
        AwqCheckpoint(AwqGemvFastTensors(kAwqModule, m), "gemv_fast", m.group_size);
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(opened.model.findings.empty());
    CheckModule(opened.Module(kAwqModule), m, random);
  }
}

TEST_CASE("llm-awq's name for the offsets is known") {
  SplitMix64 random(4);
  const AwqNumbers m = RandomAwqNumbers(8, 64, 32, random);
  const TempFolder folder;
  TestCheckpoint stored = AwqCheckpoint(AwqGemvFastTensors(kAwqModule, m), "llm-awq", m.group_size);
  stored.At(kAwqModule + ".qzeros").name = kAwqModule + ".scaled_zeros";
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.findings.empty());
  CheckModule(opened.Module(kAwqModule), m, random);
}

TEST_CASE("zero_point false makes an AWQ module symmetric, with or without qzeros") {
  SplitMix64 random(5);
  const AwqNumbers m = RandomAwqNumbers(16, 64, 32, random, true);
  TestCheckpoint stored = AwqCheckpoint(AwqGemmTensors(kAwqModule, m), "gemm", m.group_size, false);
  for (const bool with_zeros : {true, false}) {
    if (!with_zeros) stored.Remove(kAwqModule + ".qzeros");
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(DescribeScheme(opened.Module(kAwqModule).scheme()) == "w4a16 group 32 symmetric");
    CheckModule(opened.Module(kAwqModule), m, random);
  }
}

// The tensor with the nibbles of its words in the order of the channels.
void BringInOrder(TestTensor& tensor) {
  for (size_t word = 0; word < tensor.bytes.size(); word += 4) {
    Nibbles ordered(8);
    for (uint64_t i = 0; i < 8; ++i) {
      const uint64_t stored = GemmNibble(i);
      const auto byte = std::to_integer<uint8_t>(tensor.bytes[word + stored / 2]);
      ordered.Put(i, stored % 2 == 0 ? byte & 15 : byte >> 4);
    }
    std::ranges::copy(ordered.bytes(), &tensor.bytes[word]);
  }
}

TEST_CASE("Quark's AWQ may be in the order of the channels, and two's complement if symmetric") {
  SplitMix64 random(7);
  for (const std::string order : {"reorder", "order"}) {
    for (const bool symmetric : {false, true}) {
      CAPTURE(order, symmetric);
      const AwqNumbers m = RandomAwqNumbers(24, 64, 32, random, symmetric);
      TestCheckpoint stored =
          AwqCheckpoint(AwqGemmTensors(kAwqModule, m), "gemm", m.group_size, !symmetric);
      stored.config["quantization_config"]["pack_method"] = order;
      stored.config["quantization_config"]["export"] = {{"pack_method", order}};
      for (const std::string part : {".qweight", ".qzeros"}) {
        TestTensor& tensor = stored.At(kAwqModule + part);
        if (order == "order") BringInOrder(tensor);
        if (!symmetric) continue;
        for (std::byte& byte : tensor.bytes) byte ^= std::byte{0x88};
      }
      const TempFolder folder;
      stored.Write(folder.path());
      const OpenedModel opened = MustOpen(folder.path());
      CHECK(opened.model.findings.empty());
      CheckModule(opened.Module(kAwqModule), m, random);
    }
  }
}

TEST_CASE("group_size -1 is one group of K") {
  SplitMix64 random(6);
  const AwqNumbers m = RandomAwqNumbers(16, 96, 96, random);
  TestCheckpoint stored = AwqCheckpoint(AwqGemmTensors(kAwqModule, m), "gemm", 96);
  stored.config["quantization_config"]["group_size"] = -1;
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(DescribeScheme(opened.Module(kAwqModule).scheme()) == "w4a16 channel asymmetric");
  CheckModule(opened.Module(kAwqModule), m, random);
}

// Tensors of one module with bytes that the real packers wrote.
OpenedModel OpenBytes(const TempFolder& folder, const std::string& version, uint64_t group_size,
                      const TestTensor& qweight, const TestTensor& qzeros,
                      const TestTensor& scales) {
  AwqCheckpoint({qweight, qzeros, scales}, version, group_size).Write(folder.path());
  return MustOpen(folder.path());
}

std::vector<std::byte> Repeat(const std::vector<std::byte>& bytes, size_t times) {
  std::vector<std::byte> all;
  for (size_t i = 0; i < times; ++i) all.insert(all.end(), bytes.begin(), bytes.end());
  return all;
}

TEST_CASE("bytes of the real gemm packer decode to their codes and zero points") {
  const TempFolder folder;
  // K = 2, N = 16: row 0 has codes 0 … 15, row 1 codes (k + n) mod 16.
  const OpenedModel opened =
      OpenBytes(folder, "gemm", 2,
                {kAwqModule + ".qweight", "I32", {2, 2}, Hex("20643175a8ecb9fd 31754286b9fdca0e")},
                {kAwqModule + ".qzeros", "I32", {1, 2}, Hex("539764a8 db1fec20")},
                {kAwqModule + ".scales", "F16", {1, 16}, Repeat(Hex("4c22"), 16)});
  const QuantizedLinear& linear = opened.Module(kAwqModule);
  CHECK(Codes(linear) == Hex("10 21 32 43 54 65 76 87 98 a9 ba cb dc ed fe 0f"));
  CHECK(ZeroPoints(linear, 0, 16) ==
        std::vector<uint8_t>{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2});
  // Column 1: code 1, zero point 4, scale 0.0122986.
  CHECK(Dequantize(linear, 1, 1)[0] == -3 * F16ToF32(0x224C));
}

TEST_CASE("bytes of the real gemv packer decode to their codes and zero points") {
  const TempFolder folder;
  // N = 1, K = 64, groups of 32: four words of zero points, of which two nibbles count.
  const OpenedModel opened =
      OpenBytes(folder, "gemv", 32,
                {kAwqModule + ".qweight", "I32", {1, 8}, Repeat(Hex("10325476 98badcfe"), 4)},
                {kAwqModule + ".qzeros", "I32", {1, 4}, Hex("33000000 00000000 00000000 00000000")},
                {kAwqModule + ".scales",
                 "F16",
                 {1, 32},
                 Hex("4c22 4c22" + std::string(static_cast<size_t>(30) * 4, '0'))});
  const QuantizedLinear& linear = opened.Module(kAwqModule);
  CHECK(Codes(linear) == Repeat(Hex("10325476 98badcfe"), 4));
  CHECK(ZeroPoints(linear, 0, 1) == std::vector<uint8_t>{3, 3});
}

TEST_CASE("bytes of the real gemv_fast packer decode to their codes") {
  const TempFolder folder;
  const std::vector<std::byte> row =
      Hex("8080 9191 a2a2 b3b3 c4c4 d5d5 e6e6 f7f7 8080 9191 a2a2 b3b3 c4c4 d5d5 e6e6 f7f7");
  std::vector<std::byte> four = row;
  for (const char* constant : {"11", "22", "33"}) {
    const std::vector<std::byte> rest = Repeat(Hex(constant), 32);
    four.insert(four.end(), rest.begin(), rest.end());
  }
  const OpenedModel opened =
      OpenBytes(folder, "gemv_fast", 64, {kAwqModule + ".qweight", "I16", {2, 64}, Repeat(four, 2)},
                {kAwqModule + ".qzeros", "F16", {16, 8}, std::vector<std::byte>(256)},
                {kAwqModule + ".scales", "F16", {16, 8}, [] {
                   std::vector<std::byte> scales = Repeat(Hex("003c"), 8);
                   scales.resize(256);
                   return scales;
                 }()});
  std::vector<std::byte> codes = Repeat(Hex("10325476 98badcfe"), 4);
  for (const char* constant : {"11", "22", "33"}) {
    const std::vector<std::byte> rest = Repeat(Hex(constant), 32);
    codes.insert(codes.end(), rest.begin(), rest.end());
  }
  CHECK(Codes(opened.Module(kAwqModule)) == Repeat(codes, 2));
  CHECK(ZeroPoints(opened.Module(kAwqModule), 0, 8) == std::vector<uint8_t>(8, 0));
}

}  // namespace
}  // namespace prepack::testing
