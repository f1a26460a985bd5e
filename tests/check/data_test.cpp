#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "catch.h"
#include "check/check_run.h"
#include "formats/fp8_example.h"
#include "formats/gptq_example.h"
#include "prepack/formats/format.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/dequantized_linear.h"

namespace prepack::testing {
namespace {

const std::string kModule = WideModule(0);

// Of the first module.
ModuleStatistics StatisticsOf(const TestCheckpoint& checkpoint) {
  const TempFolder folder;
  checkpoint.Write(folder.path());
  const Checkpoint opened = Value(Checkpoint::Open(folder.path()));
  const QuantizedModel model = Value(ReadQuantizedModel(opened));
  const QuantizedLinear& linear = *model.modules.front();
  StatisticsBuffers numbers;
  RequireOk(ReadRows(linear, 0, linear.n(), numbers));
  ModuleStatistics statistics;
  CountRows(linear.scheme(), linear.stored_scale_dtype(), linear.k(), linear.n(),
            numbers.Rows(0, linear.n(), linear.n()), statistics);
  return statistics;
}

TEST_CASE("a sound checkpoint has no findings, and its statistics are those of its codes") {
  const CheckReport report = RunCheck(WideExample());
  RequireSound(report);
  REQUIRE(report.modules.size() == 1);
  REQUIRE(report.modules[0].figures.has_value());
  const CheckFigures& figures = *report.modules[0].figures;
  CHECK(report.modules[0].weights() == kWideN * kWideK);
  CHECK(figures.scales == kWideN * kWideK / kWideGroup);
  CHECK(figures.counts->zero_points == 0);
  CHECK(figures.min_scale >= 0.004F);
  CHECK(figures.max_scale <= 0.018F);
  CHECK(figures.mean_shift < 0.05);
  CHECK(figures.commonest_code == 8);
  const ModuleStatistics statistics = StatisticsOf(WideExample());
  CHECK(statistics.spread.groups == statistics.scales);
  CHECK(std::abs(statistics.spread.Fit().slope + 1) < 0.3);
  CHECK(statistics.windows.windows == kWideN * kWideK / 4096);
}

TEST_CASE("a zero point that is off by one shifts the weights") {
  TestCheckpoint checkpoint = WideExample();
  for (std::byte& byte : checkpoint.At(kModule + ".weight_packed").bytes) {
    const auto shift = [](unsigned code) { return std::min(code + 1U, 15U); };
    const auto value = std::to_integer<unsigned>(byte);
    byte = static_cast<std::byte>(shift(value & 15U) | shift(value >> 4) << 4);
  }
  RequireOnly(RunCheck(checkpoint), "weights-shifted", "of their rms", CheckVerdict::kWarnings);
}

TEST_CASE("equal codes are reported") {
  TestCheckpoint checkpoint = WideExample();
  std::ranges::fill(checkpoint.At(kModule + ".weight_packed").bytes, std::byte{0x88});
  RequireOnly(RunCheck(checkpoint), "codes-constant", "100.00 % of the codes are 8",
              CheckVerdict::kWarnings);
}

TEST_CASE("clamped codes are reported") {
  TestCheckpoint checkpoint = WideExample();
  auto& bytes = checkpoint.At(kModule + ".weight_packed").bytes;
  for (size_t i = 0; i < bytes.size(); i += 2) bytes[i] = std::byte{0xF0};
  RequireOnly(RunCheck(checkpoint), "codes-saturated", "ends of their range",
              CheckVerdict::kWarnings);
}

TEST_CASE("bits in padding are reported") {
  TestCheckpoint checkpoint = SymmetricExample();
  ExampleWeights(checkpoint)["group_size"] = 4;
  TestTensor& scale = checkpoint.At(kExampleModule + ".weight_scale");
  scale.shape = {4, 3};
  scale.bytes = Hex("00 3f 80 3e 80 3f  00 40 00 3e 80 3d  c0 3f 40 40 80 3f  80 3f 00 40 80 3f");
  checkpoint.At(kExampleModule + ".weight_shape").bytes = Int64s({4, 12});
  // Codes 12 to 15 of each row are padding now: cdef, 3210, 0f6e … as they stood there.
  const CheckReport report = RunCheck(checkpoint);
  INFO(Lines(report));
  const std::vector<Finding> findings = report.AllFindings();
  const auto padding = std::ranges::find(findings, "padding-not-zero", &Finding::id);
  REQUIRE(padding != findings.end());
  CHECK(padding->where == kExampleModule);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t byte = 6; byte < 8; ++byte) {
      checkpoint.At(kExampleModule + ".weight_packed").bytes[row * 8 + byte] = std::byte{0};
    }
  }
  RequireSound(RunCheck(checkpoint));
}

TEST_CASE("bad and suspicious scales are reported") {
  struct Case {
    float scale;
    size_t count;
    std::string_view id;
    std::string_view text;
    CheckVerdict verdict;
  };
  const size_t all = kWideN * kWideK / kWideGroup;
  const Case cases[] = {
      {std::numeric_limits<float>::infinity(), 1, "scale-not-finite", "", CheckVerdict::kBadValues},
      {std::numeric_limits<float>::quiet_NaN(), 1, "scale-not-finite", "",
       CheckVerdict::kBadValues},
      {0.0F, 1, "scale-zero", "", CheckVerdict::kBadValues},
      {20000.0F, 1, "scale-huge", "1 of 256 scales are above 10000", CheckVerdict::kWarnings},
      {-0.01F, 3, "scale-negative", "3 of 256", CheckVerdict::kSound},
      {0x1p-30F, 2, "scale-outside-f16", "2 of 256", CheckVerdict::kWarnings},
      {0.0078125F, all, "scale-constant", "all 256 scales are 0.0078125", CheckVerdict::kWarnings},
  };
  for (const Case& test : cases) {
    TestCheckpoint checkpoint = WideExample();
    for (size_t i = 0; i < test.count; ++i) {
      PutBF16(checkpoint.At(kModule + ".weight_scale").bytes, i, test.scale);
    }
    const CheckReport report = RunCheck(checkpoint);
    INFO(test.id << " " << test.scale << "\n" << Lines(report));
    const std::vector<Finding> findings = report.AllFindings();
    CHECK(std::ranges::find(findings, test.id, &Finding::id) != findings.end());
    CHECK(Lines(report).find(test.text) != std::string::npos);
    CHECK(CheckVerdictName(report.verdict) == CheckVerdictName(test.verdict));
    if (test.scale < 1) CHECK(findings.size() == 1);
  }
}

TEST_CASE("a scale of zero is reported even where all weights are zero") {
  TestCheckpoint checkpoint = WideExample();
  PutBF16(checkpoint.At(kModule + ".weight_scale").bytes, 2, 0.0F);
  auto& codes = checkpoint.At(kModule + ".weight_packed").bytes;
  for (size_t i = kWideGroup; i < kWideGroup / 2 * 3; ++i) codes[i] = std::byte{0x88};
  RequireOnly(RunCheck(checkpoint), "scale-zero-empty",
              "1 of 256 scales are zero, and so are the weights of their groups",
              CheckVerdict::kWarnings);
}

TEST_CASE("scales that their dtype holds badly are reported") {
  TestCheckpoint checkpoint = WideExample();
  TestTensor& scale = checkpoint.At(kModule + ".weight_scale");
  scale.dtype = "F16";
  for (size_t i = 0; i < scale.bytes.size(); i += 2) {
    const auto bf16 = static_cast<uint16_t>(std::to_integer<unsigned>(scale.bytes[i]) |
                                            std::to_integer<unsigned>(scale.bytes[i + 1]) << 8);
    const uint16_t f16 = F32ToF16(BF16ToF32(bf16));
    scale.bytes[i] = static_cast<std::byte>(f16 & 0xFFU);
    scale.bytes[i + 1] = static_cast<std::byte>(f16 >> 8);
  }
  scale.bytes[6] = std::byte{0x40};  // 2^-18: a subnormal of 7 bits
  scale.bytes[7] = std::byte{0x00};
  RequireOnly(RunCheck(checkpoint), "scale-imprecise",
              "1 of 256 scales are subnormal numbers with fewer than 8 significant bits",
              CheckVerdict::kWarnings);
  scale.bytes[6] = std::byte{0x80};  // 2^-17 has 8
  RequireSound(RunCheck(checkpoint));
}

TEST_CASE("the check goes on after a module with bad data") {
  TestCheckpoint checkpoint = WideExample(3);
  PutBF16(checkpoint.At(WideModule(1) + ".weight_scale").bytes, 7,
          std::numeric_limits<float>::infinity());
  const CheckReport report = RunCheck(checkpoint);
  REQUIRE(report.modules.size() == 3);
  CHECK(report.modules[0].figures.has_value());
  CHECK_FALSE(report.modules[1].figures.has_value());
  CHECK(report.modules[2].figures.has_value());
  CHECK(report.modules[1].findings.size() == 1);
  CHECK(CheckExitCode(report.verdict, false) == 1);
}

TEST_CASE("zero points at one end of their range are reported") {
  TestCheckpoint checkpoint = WideExample();
  ExampleWeights(checkpoint)["symmetric"] = false;
  const size_t groups = kWideK / kWideGroup;
  checkpoint.tensors.push_back({kModule + ".weight_zero_point",
                                "I32",
                                {kWideN / 8, groups},
                                std::vector<std::byte>(kWideN / 8 * groups * 4, std::byte{0x88})});
  RequireSound(RunCheck(checkpoint));
  auto& zeros = checkpoint.At(kModule + ".weight_zero_point").bytes;
  std::fill(zeros.begin(), zeros.begin() + static_cast<std::ptrdiff_t>(zeros.size() * 3 / 4),
            std::byte{0xFF});
  const CheckReport report = RunCheck(checkpoint);
  INFO(Lines(report));
  CHECK(Lines(report).find("zero-point-at-rail: " + kModule +
                           ": 75.0 % of the zero points are 15") != std::string::npos);
}

TEST_CASE("zero points of 0 that borrowed from their neighbours are told") {
  GptqExample x;
  x.symmetric = false;
  x.Randomize(7, 1);
  x.zeros.assign(x.zeros.size(), 8);
  TestCheckpoint checkpoint = MakeGptq(x);
  GptqConfigOf(checkpoint)["checkpoint_format"] = "gptq";
  GptqConfigOf(checkpoint)["meta"]["quantizer"] = "gptqmodel:5.0.0";
  auto& zeros = checkpoint.At(kGptqModule + ".qzeros").bytes;
  zeros = Words({0x77777777, 0x77777777});
  CHECK(Lines(RunCheck(checkpoint)).find("zero-point-borrowed") == std::string::npos);
  zeros = Words({0x77776F77, 0x77777777});  // 88888088 - 11111111: the 0 takes one from above
  const std::string lines = Lines(RunCheck(checkpoint));
  INFO(lines);
  CHECK(lines.find("zero-point-borrowed: " + kGptqModule + ": 1 zero points of 0") !=
        std::string::npos);
}

TEST_CASE("the figures do not depend on the number of threads") {
  const TestCheckpoint checkpoint = WideExample(5);
  const CheckReport one = RunCheck(checkpoint, nullptr, false, 1);
  const CheckReport seven = RunCheck(checkpoint, nullptr, false, 7);
  for (size_t i = 0; i < one.modules.size(); ++i) {
    CHECK(one.modules[i].figures->mean_shift == seven.modules[i].figures->mean_shift);
    CHECK(one.modules[i].figures->root_mean_square == seven.modules[i].figures->root_mean_square);
  }
}

uint8_t NearestCode(CodeType type, unsigned count, double value) {
  const std::array<float, 256>& values = CodeValues(type);
  unsigned best = 0;
  for (unsigned code = 1; code < count; ++code) {
    const auto off = [&](unsigned i) { return std::abs(static_cast<double>(values[i]) - value); };
    if (off(code) < off(best)) best = code;
  }
  return static_cast<uint8_t>(best);
}

constexpr float kWideGlobal = 1000;

// The weights of WideExample in FP4: NVFP4, or MXFP4.
TestCheckpoint WideFp4(bool nvfp4) {
  const uint64_t group_size = nvfp4 ? 16 : 32;
  TestCheckpoint checkpoint = WideExample();
  checkpoint.config["quantization_config"]["format"] =
      nvfp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
  ExampleWeights(checkpoint) = {{"num_bits", 4},
                                {"type", "float"},
                                {"strategy", nvfp4 ? "tensor_group" : "group"},
                                {"group_size", group_size}};
  checkpoint.tensors.clear();
  SplitMix64 random(1);
  std::vector<double> values(kWideN * kWideK);
  for (double& value : values) value = 0.03 * random.Gaussian();
  std::vector<std::byte> codes(values.size() / 2);
  std::vector<std::byte> scales(values.size() / group_size);
  for (size_t group = 0; group < scales.size(); ++group) {
    double largest = 0;
    for (size_t i = 0; i < group_size; ++i) {
      largest = std::max(largest, std::abs(values[group * group_size + i]));
    }
    const int exponent = std::ilogb(largest) - 2;
    const uint8_t fp8 =
        NearestCode(CodeType::kF8E4M3, 127, largest / 6 * static_cast<double>(kWideGlobal));
    scales[group] = static_cast<std::byte>(nvfp4 ? fp8 : exponent + 127);
    const double scale =
        nvfp4 ? static_cast<double>(F8E4M3ToF32(fp8) / kWideGlobal) : std::ldexp(1.0, exponent);
    for (size_t i = group * group_size; i < (group + 1) * group_size; ++i) {
      const unsigned code = NearestCode(CodeType::kF4E2M1, 16, values[i] / scale);
      codes[i / 2] |= static_cast<std::byte>(code << (i % 2 * 4));
    }
  }
  checkpoint.tensors.push_back({kModule + ".weight_packed", "U8", {kWideN, kWideK / 2}, codes});
  checkpoint.tensors.push_back(
      {kModule + ".weight_scale", nvfp4 ? "F8_E4M3" : "U8", {kWideN, kWideK / group_size}, scales});
  if (nvfp4) {
    checkpoint.tensors.push_back(
        {kModule + ".weight_global_scale", "F32", {1}, Floats32({kWideGlobal})});
  }
  return checkpoint;
}

TEST_CASE("sound FP4 has no findings, and its statistics are those of its numbers") {
  for (const bool nvfp4 : {false, true}) {
    const CheckReport report = RunCheck(WideFp4(nvfp4));
    RequireSound(report);
    REQUIRE(report.modules[0].figures.has_value());
    const CheckFigures& figures = *report.modules[0].figures;
    CHECK(report.modules[0].weights() == kWideN * kWideK);
    CHECK(std::abs(figures.root_mean_square - 0.03) < 0.001);
    CHECK(figures.distinct_codes >= 15);
    CHECK(figures.mean_shift < 0.05);
    CHECK(StatisticsOf(WideFp4(nvfp4)).windows.windows == kWideN * kWideK / 4096);
  }
}

TEST_CASE("FP4: a global scale that is used the wrong way round shows in the weights") {
  TestCheckpoint checkpoint = WideFp4(true);
  checkpoint.At(kModule + ".weight_global_scale").bytes = Floats32({1 / kWideGlobal});
  const CheckReport report = RunCheck(checkpoint);
  CHECK(report.verdict == CheckVerdict::kWarnings);
  const std::vector<Finding> findings = report.AllFindings();
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].id == "scale-huge");
  CHECK(findings[1].id == "weights-size");
}

// The numbers of WideFp4(true) as ModelOpt stores them.
TestCheckpoint WideModelOpt() {
  TestCheckpoint checkpoint = WideFp4(true);
  checkpoint.config["quantization_config"] = {
      {"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 16}};
  checkpoint.At(kModule + ".weight_packed").name = kModule + ".weight";
  checkpoint.Remove(kModule + ".weight_global_scale");
  checkpoint.tensors.push_back({kModule + ".weight_scale_2", "F32", {}, Floats32({0.001F})});
  return checkpoint;
}

TEST_CASE("FP4: a divisor where ModelOpt has a factor shows in the weights") {
  TestCheckpoint checkpoint = WideModelOpt();
  RequireSound(RunCheck(checkpoint));
  checkpoint.At(kModule + ".weight_scale_2").bytes = Floats32({kWideGlobal});
  const CheckReport report = RunCheck(checkpoint);
  CHECK(report.verdict == CheckVerdict::kWarnings);
  CHECK(Lines(report).find("weights-size: " + kModule) != std::string::npos);
  // The name that the other dialect has for it.
  checkpoint.At(kModule + ".weight_scale_2").name = kModule + ".weight_global_scale";
  const CheckReport other = RunCheck(checkpoint);
  CHECK(other.verdict == CheckVerdict::kMalformed);
  CHECK(Lines(other).find("a scale of the FP4 weight is missing") != std::string::npos);
}

// The same weights in FP8, with exponents for groups of 32 or with one scale for each block.
TestCheckpoint WideFp8(bool mx) {
  constexpr uint64_t kRows = 2;
  const uint64_t columns = mx ? 32 : kWideK;
  TestCheckpoint checkpoint = WideExample();
  checkpoint.config["quantization_config"] = {{"quant_method", mx ? "mxfp8" : "fp8"},
                                              {"activation_scheme", "dynamic"}};
  Json& block = checkpoint.config["quantization_config"]["weight_block_size"];
  block = {mx ? 1 : kRows, columns};
  checkpoint.tensors.clear();
  SplitMix64 random(1);
  std::vector<std::byte> codes(kWideN * kWideK);
  const uint64_t rows = mx ? 1 : kRows;
  const size_t scales = codes.size() / rows / columns;
  const float scale = 0x1p-11F;
  for (std::byte& code : codes) {
    code = static_cast<std::byte>(
        NearestCode(CodeType::kF8E4M3, 256, 0.03 * random.Gaussian() / double{scale}));
  }
  checkpoint.tensors.push_back({kModule + ".weight", "F8_E4M3", {kWideN, kWideK}, codes});
  std::vector<float> numbers;
  std::vector<std::byte> exponents;
  for (size_t i = 0; i < scales; ++i) {
    // Not all alike.
    numbers.push_back(scale * (1 + static_cast<float>(i % 16) / 256));
    exponents.push_back(static_cast<std::byte>(116 + i % 2));
  }
  checkpoint.tensors.push_back({kModule + ".weight_scale_inv",
                                mx ? "U8" : "F32",
                                {kWideN / rows, kWideK / columns},
                                mx ? exponents : Floats32(numbers)});
  return checkpoint;
}

TEST_CASE("FP8: a scale that was stored as its inverse shows in the weights") {
  RequireSound(RunCheck(WideFp8(false)));
  TestCheckpoint checkpoint = WideFp8(false);
  std::vector<std::byte>& bytes = checkpoint.At(kModule + ".weight_scale_inv").bytes;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    float scale = 0;
    std::memcpy(&scale, &bytes[i], sizeof scale);
    scale = 1 / scale;
    std::memcpy(&bytes[i], &scale, sizeof scale);
  }
  RequireOnly(RunCheck(checkpoint), "weights-size", "in working models", CheckVerdict::kWarnings);
}

TEST_CASE("MX: exponents whose sign was lost, and those at the ends of their range") {
  RequireSound(RunCheck(WideFp8(true)));
  for (const bool fp4 : {false, true}) {
    CAPTURE(fp4);
    const TestCheckpoint sound = fp4 ? WideFp4(false) : WideFp8(true);
    const std::string scale = kModule + (fp4 ? ".weight_scale" : ".weight_scale_inv");
    TestCheckpoint inverted = sound;  // 2^-e
    for (std::byte& byte : inverted.At(scale).bytes) {
      byte = static_cast<std::byte>(254 - std::to_integer<int>(byte));
    }
    const CheckReport report = RunCheck(inverted);
    CHECK(report.verdict == CheckVerdict::kWarnings);
    CHECK(Lines(report).find("weights-size: " + kModule) != std::string::npos);
    // 255 is NaN, beyond 252 a bf16 kernel wraps, and 0 is a subnormal number.
    TestCheckpoint extreme = sound;
    extreme.At(scale).bytes[7] = std::byte{255};
    RequireOnly(RunCheck(extreme), "scale-not-finite", "is not a finite number",
                CheckVerdict::kBadValues);
    for (const int exponent : {253, 254}) {
      extreme.At(scale).bytes[7] = static_cast<std::byte>(exponent);
      CHECK(Lines(RunCheck(extreme)).find("scale-huge: " + kModule) != std::string::npos);
    }
    for (const int exponent : {0, 1}) {
      extreme.At(scale).bytes[7] = static_cast<std::byte>(exponent);
      CHECK(Lines(RunCheck(extreme)).find("scale-outside-f16: " + kModule) != std::string::npos);
    }
  }
}

TEST_CASE("FP8: a code that is NaN is an error of its module") {
  for (const bool mx : {false, true}) {
    TestCheckpoint checkpoint = WideFp8(mx);
    checkpoint.At(kModule + ".weight").bytes[1000] = std::byte{0x7F};
    RequireOnly(RunCheck(checkpoint), "code-nan", kModule, CheckVerdict::kBadValues);
  }
}

TEST_CASE("NVFP4: scales of other groups are found") {
  TestCheckpoint checkpoint = WideFp4(true);
  std::vector<std::byte>& scales = checkpoint.At(kModule + ".weight_scale").bytes;
  std::rotate(scales.begin(), scales.begin() + 8, scales.end());
  RequireOnly(RunCheck(checkpoint), "scale-unrelated", "0 if they do not)",
              CheckVerdict::kWarnings);
  // Transposed: as many scales in the same shape, but [G, N] of them.
  TestCheckpoint transposed = WideFp4(true);
  const std::vector<std::byte> stored = transposed.At(kModule + ".weight_scale").bytes;
  for (size_t i = 0; i < stored.size(); ++i) {
    transposed.At(kModule + ".weight_scale").bytes[i % (kWideK / 16) * kWideN + i / (kWideK / 16)] =
        stored[i];
  }
  RequireOnly(RunCheck(transposed), "scale-unrelated", "0 if they do not)",
              CheckVerdict::kWarnings);
}

TEST_CASE("FP4: signs that are lost, and equal codes, are reported") {
  for (const bool nvfp4 : {false, true}) {
    TestCheckpoint unsigned_codes = WideFp4(nvfp4);
    for (std::byte& byte : unsigned_codes.At(kModule + ".weight_packed").bytes) {
      byte &= std::byte{0x77};
    }
    RequireOnly(RunCheck(unsigned_codes), "weights-shifted", "of their rms",
                CheckVerdict::kWarnings);
    TestCheckpoint equal = WideFp4(nvfp4);
    std::ranges::fill(equal.At(kModule + ".weight_packed").bytes, std::byte{0x99});
    RequireOnly(RunCheck(equal), "codes-constant", "100.00 % of the codes are -0.5",
                CheckVerdict::kWarnings);
  }
}

TEST_CASE("FP4: a page of zeros is damage") {
  TestCheckpoint checkpoint = WideFp4(false);
  auto& bytes = checkpoint.At(kModule + ".weight_packed").bytes;
  std::fill(bytes.begin() + 512, bytes.begin() + 1536, std::byte{0});
  RequireOnly(RunCheck(checkpoint), "codes-damaged", "64 groups of zeros under the scale of other",
              CheckVerdict::kWarnings);
}

}  // namespace
}  // namespace prepack::testing
