// Weights stored row by row, in every width, packing, granularity and stacking, against a naive
// writer.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/read_helpers.h"
#include "prepack/base/random.h"
#include "prepack/formats/rows/row_linear.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

const std::string kRowModule = "model.layers.0.mlp.up_proj";

// A module in the terms of the config, with its numbers.
struct Sample {
  uint32_t bits = 4;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t group_size = 0;  // 0: channel
  bool symmetric = true;
  bool dense = true;
  uint64_t experts = 0;              // 0: not stacked
  std::vector<uint8_t> codes;        // [E, N, K], unsigned
  std::vector<uint8_t> zero_points;  // [E, N, G], unsigned
  std::vector<float> scales;         // [E, N, G]

  uint64_t groups() const { return group_size == 0 ? 1 : k / group_size; }
  uint64_t matrices() const { return experts == 0 ? 1 : experts; }
};

// Packs `count` codes that lie `stride` apart, bit by bit.
std::vector<uint32_t> PackWords(const uint8_t* codes, uint64_t count, uint64_t stride,
                                uint32_t bits, bool dense) {
  const uint64_t per_word = 32 / bits;
  const uint64_t words = dense ? (count * bits + 31) / 32 : (count + per_word - 1) / per_word;
  std::vector<uint32_t> packed(words);
  for (uint64_t i = 0; i < count; ++i) {
    for (uint32_t b = 0; b < bits; ++b) {
      const uint64_t bit = dense ? i * bits + b : i / per_word * 32 + i % per_word * bits + b;
      packed[bit / 32] |= (codes[i * stride] >> b & 1U) << (bit % 32);
    }
  }
  return packed;
}

void AppendWord(uint32_t word, std::vector<std::byte>& out) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(word >> (8 * i) & 0xFFU));
}

std::vector<std::byte> FloatBytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  for (const float value : values) AppendWord(std::bit_cast<uint32_t>(value), bytes);
  return bytes;
}

Sample RandomSample(SplitMix64& random) {
  Sample s;
  s.bits = static_cast<uint32_t>(1 + random.Below(8));
  s.n = 1 + random.Below(40);
  s.group_size = random.Below(2) == 0 ? 0 : 1 + random.Below(24);
  s.k = s.group_size == 0 ? 1 + random.Below(100) : s.group_size * (1 + random.Below(6));
  s.symmetric = random.Below(2) == 0;
  s.dense = random.Below(2) == 0;
  s.experts = random.Below(3) == 0 ? 1 + random.Below(3) : 0;
  const uint64_t limit = 1U << s.bits;
  for (uint64_t i = 0; i < s.matrices() * s.n * s.k; ++i) {
    s.codes.push_back(static_cast<uint8_t>(random.Below(limit)));
  }
  for (uint64_t i = 0; i < s.matrices() * s.n * s.groups(); ++i) {
    s.zero_points.push_back(static_cast<uint8_t>(s.symmetric ? limit / 2 : random.Below(limit)));
    s.scales.push_back(static_cast<float>(1 + random.Below(1000)) *
                       (random.Below(2) == 0 ? 0x1p-12F : -0x1p-12F));
  }
  return s;
}

std::vector<uint64_t> Shape(const Sample& s, std::vector<uint64_t> dims) {
  if (s.experts != 0) dims.insert(dims.begin(), s.experts);
  return dims;
}

TestCheckpoint Base(const Sample& s, const std::string& format) {
  TestCheckpoint stored;
  stored.config = {{"quantization_config",
                    {{"quant_method", "compressed-tensors"},
                     {"format", format},
                     {"version", s.dense ? "0.19.0" : "0.17.0"},
                     {"config_groups",
                      {{"group_0",
                        {{"targets", {"Linear"}},
                         {"weights",
                          {{"num_bits", s.bits},
                           {"strategy", s.group_size == 0 ? "channel" : "group"},
                           {"group_size", s.group_size == 0 ? Json(nullptr) : Json(s.group_size)},
                           {"symmetric", s.symmetric}}}}}}}}}};
  stored.tensors.push_back(
      {kRowModule + ".weight_scale", "F32", Shape(s, {s.n, s.groups()}), FloatBytes(s.scales)});
  return stored;
}

TestCheckpoint Packed(const Sample& s) {
  TestCheckpoint stored = Base(s, "pack-quantized");
  std::vector<std::byte> packed;
  uint64_t words = 0;
  for (uint64_t row = 0; row < s.matrices() * s.n; ++row) {
    const auto row_words = PackWords(s.codes.data() + row * s.k, s.k, 1, s.bits, s.dense);
    for (const uint32_t word : row_words) AppendWord(word, packed);
    words = row_words.size();
  }
  stored.tensors.push_back({kRowModule + ".weight_packed", "I32", Shape(s, {s.n, words}), packed});
  std::vector<int64_t> dims = {static_cast<int64_t>(s.n), static_cast<int64_t>(s.k)};
  if (s.experts != 0) dims.insert(dims.begin(), static_cast<int64_t>(s.experts));
  stored.tensors.push_back({kRowModule + ".weight_shape", "I64", {dims.size()}, Int64s(dims)});
  if (s.symmetric) return stored;

  std::vector<std::byte> zeros;
  for (uint64_t e = 0; e < s.matrices(); ++e) {
    std::vector<std::vector<uint32_t>> columns;
    for (uint64_t g = 0; g < s.groups(); ++g) {
      columns.push_back(PackWords(s.zero_points.data() + e * s.n * s.groups() + g, s.n, s.groups(),
                                  s.bits, s.dense));
    }
    words = columns[0].size();
    for (uint64_t row = 0; row < words; ++row) {
      for (uint64_t g = 0; g < s.groups(); ++g) AppendWord(columns[g][row], zeros);
    }
  }
  stored.tensors.push_back(
      {kRowModule + ".weight_zero_point", "I32", Shape(s, {words, s.groups()}), zeros});
  return stored;
}

// Signed bytes: the unsigned numbers minus half.
std::vector<std::byte> Signed(const Sample& s, const std::vector<uint8_t>& values) {
  std::vector<std::byte> bytes;
  for (const uint8_t value : values) {
    bytes.push_back(static_cast<std::byte>(static_cast<uint8_t>(value - (1U << (s.bits - 1)))));
  }
  return bytes;
}

TestCheckpoint Bytes(const Sample& s) {
  TestCheckpoint stored = Base(s, "int-quantized");
  stored.tensors.push_back(
      {kRowModule + ".weight", "I8", Shape(s, {s.n, s.k}), Signed(s, s.codes)});
  if (!s.symmetric) {
    stored.tensors.push_back({kRowModule + ".weight_zero_point", "I8", Shape(s, {s.n, s.groups()}),
                              Signed(s, s.zero_points)});
  }
  return stored;
}

// Steps (code − zero point), scales and a random panel of every module equal those of the sample.
void CheckReads(const Sample& s, const TestCheckpoint& stored, SplitMix64& random) {
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  REQUIRE(opened.model.modules.size() == s.matrices());
  for (uint64_t e = 0; e < s.matrices(); ++e) {
    const QuantizedLinear& linear =
        opened.Module(s.experts == 0 ? kRowModule : kRowModule + "." + std::to_string(e));
    REQUIRE(linear.n() == s.n);
    REQUIRE(linear.k() == s.k);
    REQUIRE(linear.groups() == s.groups());
    CHECK(linear.scheme().bits == s.bits);
    CHECK(linear.scheme().symmetric == s.symmetric);
    const CodeType code = linear.scheme().code;
    const std::vector<float> scales = Scales(linear, 0, s.n);
    const std::vector<uint8_t> zeros = ZeroPoints(linear, 0, s.n);
    CHECK(scales ==
          std::vector<float>(s.scales.begin() + static_cast<long>(e * scales.size()),
                             s.scales.begin() + static_cast<long>((e + 1) * scales.size())));

    PanelRange range;
    range.n0 = random.Below(s.n);
    range.rows = 1 + random.Below(s.n - range.n0);
    range.k0 = random.Below(s.k) / 2 * 2;
    range.cols = 1 + random.Below(s.k - range.k0);
    if (range.k0 + range.cols != s.k) range.cols = (range.cols + 1) / 2 * 2;
    for (const PanelRange& part : {PanelRange{0, s.n, 0, s.k}, range}) {
      const std::vector<std::byte> panel = Codes(linear, part);
      if (const auto found = linear.FindCodes(part)) {
        std::vector<std::byte> stored_codes(panel.size());
        const StoredTensor* tensor = opened.checkpoint->Find(found->tensor);
        REQUIRE(tensor != nullptr);
        REQUIRE(opened.checkpoint->Read(*tensor, found->offset, stored_codes).ok());
        REQUIRE(stored_codes == panel);
      }
      for (uint64_t row = 0; row < part.rows; ++row) {
        for (uint64_t col = 0; col < part.cols; ++col) {
          const uint64_t n = part.n0 + row;
          const uint64_t k = part.k0 + col;
          const uint64_t g = s.group_size == 0 ? 0 : k / s.group_size;
          const int wanted =
              s.codes[(e * s.n + n) * s.k + k] - s.zero_points[(e * s.n + n) * s.groups() + g];
          const uint8_t bits = PanelCode(code, panel, part.cols, row, col);
          const int value = code == CodeType::kS8 ? static_cast<int8_t>(bits) : bits;
          REQUIRE(value - zeros[n * s.groups() + g] == wanted);
        }
      }
    }
  }
}

TEST_CASE("packed codes of 1 to 8 bits read as they were written") {
  SplitMix64 random(21);
  for (int i = 0; i < 300; ++i) {
    const Sample s = RandomSample(random);
    CAPTURE(i, s.bits, s.n, s.k, s.group_size, s.symmetric, s.dense, s.experts);
    CheckReads(s, Packed(s), random);
  }
}

TEST_CASE("codes of 1 to 8 bits in bytes read as they were written") {
  SplitMix64 random(22);
  for (int i = 0; i < 200; ++i) {
    const Sample s = RandomSample(random);
    CAPTURE(i, s.bits, s.n, s.k, s.group_size, s.symmetric, s.experts);
    CheckReads(s, Bytes(s), random);
  }
}

TEST_CASE("whole rows of 4 and 8 bits without padding can be used where they lie") {
  Sample s;
  s.n = 3;
  const auto fill = [&s](uint32_t bits, uint64_t k) {
    s.bits = bits;
    s.k = k;
    s.codes.assign(s.n * k, 1);
    s.zero_points.assign(s.n, static_cast<uint8_t>(1U << (bits - 1)));
    s.scales.assign(s.n, 1.0F);
  };
  const auto find = [](const TestCheckpoint& stored, const PanelRange& range) {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    const auto found = opened.Module(kRowModule).FindCodes(range);
    return found.has_value() ? std::string(found->tensor) + "+" + std::to_string(found->offset)
                             : "none";
  };
  fill(4, 16);
  CHECK(find(Packed(s), {1, 2, 0, 16}) == kRowModule + ".weight_packed+8");
  CHECK(find(Packed(s), {1, 2, 0, 8}) == "none");  // parts of rows
  CHECK(find(Bytes(s), {1, 2, 0, 16}) == "none");  // one code per byte
  fill(4, 7);
  CHECK(find(Packed(s), {1, 2, 0, 7}) == "none");  // half a byte of padding
  fill(4, 10);
  CHECK(find(Packed(s), {1, 2, 0, 10}) == "none");  // padded to whole words
  fill(3, 32);
  CHECK(find(Packed(s), {1, 2, 0, 32}) == "none");  // to be unpacked
  fill(8, 12);
  CHECK(find(Packed(s), {1, 2, 0, 12}) == kRowModule + ".weight_packed+12");
  CHECK(find(Bytes(s), {2, 1, 0, 12}) == kRowModule + ".weight+24");
}

TEST_CASE("more stacked experts than any model has are refused") {
  Sample s;
  s.n = 1;
  s.k = 8;
  s.experts = 8193;
  s.codes.assign(s.experts * 8, 1);
  s.zero_points.assign(s.experts, 8);
  s.scales.assign(s.experts, 1.0F);
  const TempFolder folder;
  Bytes(s).Write(folder.path());
  const Result<OpenedModel> opened = OpenModel(folder.path());
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.status().kind() == ErrorKind::kUnsupported);
  CHECK(opened.status().what() == "too many stacked experts");
}

TEST_CASE("bits in padding are counted, and change nothing else") {
  SplitMix64 random(24);
  size_t padded = 0;
  for (int i = 0; i < 60; ++i) {
    Sample s = RandomSample(random);
    s.experts = 0;
    s.codes.resize(s.n * s.k);
    s.zero_points.resize(s.n * s.groups());
    s.scales.resize(s.n * s.groups());
    CAPTURE(i, s.bits, s.n, s.k, s.group_size, s.symmetric, s.dense);
    TestCheckpoint stored = Packed(s);
    const auto count = [](const TestCheckpoint& checkpoint) {
      const TempFolder folder;
      checkpoint.Write(folder.path());
      const Result<uint64_t> bits = MustOpen(folder.path()).Module(kRowModule).CountStrayBits();
      REQUIRE(bits.ok());
      return *bits;
    };
    CHECK(count(stored) == 0);
    // The highest bit of the last word of the last row, where it is padding.
    const uint64_t per_word = 32 / s.bits;
    const bool spare = s.dense || 32 % s.bits == 0 ? s.k * s.bits % 32 != 0
                                                   : s.k % per_word != 0 || 32 % s.bits != 0;
    if (!spare) continue;
    ++padded;
    stored.At(kRowModule + ".weight_packed").bytes.back() |= std::byte{0x80};
    CHECK(count(stored) == 1);
    CheckReads(s, stored, random);
  }
  CHECK(padded > 20);
}

TEST_CASE("a byte that needs more bits than the scheme has is malformed, wherever it is") {
  SplitMix64 random(23);
  Sample s = RandomSample(random);
  for (s.bits = 2; s.bits < 8; ++s.bits) {
    s.n = 5;
    s.k = 7;
    s.group_size = 0;
    s.experts = 0;
    s.symmetric = true;
    s.codes.assign(s.n * s.k, 1);
    s.zero_points.assign(s.n, static_cast<uint8_t>(1U << (s.bits - 1)));
    s.scales.assign(s.n, 1.0F);
    TestCheckpoint stored = Bytes(s);
    const auto half = static_cast<uint8_t>(1U << (s.bits - 1));
    stored.At(kRowModule + ".weight").bytes[4 * 7 + 6] = static_cast<std::byte>(half);
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    const QuantizedLinear& linear = opened.Module(kRowModule);
    const PanelRange all{0, s.n, 0, s.k};
    std::vector<std::byte> codes(PanelBytes(linear.scheme().code, all));
    const Status status = linear.ReadCodes(all, codes);
    CAPTURE(s.bits, status.ToString());
    REQUIRE_FALSE(status.ok());
    CHECK(status.kind() == ErrorKind::kMalformed);
    CHECK(status.id() == "code-outside-bits");
    CHECK(status.found() == std::to_string(half) + " at [4, 6]");
  }
}

}  // namespace
}  // namespace prepack::testing
