// The packings of AutoRound, and which zero points they mean.

#include <string>
#include <vector>

#include "catch.h"
#include "formats/auto_round_example.h"
#include "formats/defects.h"

namespace prepack {
namespace {

using testing::ArAwq;
using testing::ArCheckpoint;
using testing::ArConfig;
using testing::ArGptq;
using testing::ArGptqTensors;
using testing::ArNumbers;
using testing::AwqGemmTensors;
using testing::AwqNumbers;
using testing::FindingsOf;
using testing::HasFinding;
using testing::Hex;
using testing::kArModule;
using testing::MustOpen;
using testing::OpenedModel;
using testing::TempFolder;
using testing::TestCheckpoint;

// Weights of the first channel, and the zero point of the second.
struct Read {
  std::vector<float> weights;
  unsigned zero_point = 0;
  std::string scheme;
};

Read ReadArModule(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.format == "auto-round");
  const QuantizedLinear& linear = opened.Module(kArModule);
  return {testing::Dequantize(linear, 0, 1), testing::ZeroPoints(linear, 1, 1)[0],
          DescribeScheme(linear.scheme())};
}

TEST_CASE("The tensors of AutoRound's packers decode to their weights, negative scales included") {
  const std::vector<std::byte> gptq_column0 = Hex("10325476 98badcfe 10325476 98badcfe");
  const TestCheckpoint gptq = ArGptq();
  const std::vector<std::byte>& words = gptq.tensors[0].bytes;
  for (size_t word = 0; word < 4; ++word) {
    CHECK(std::equal(words.begin() + static_cast<std::ptrdiff_t>(word * 128),
                     words.begin() + static_cast<std::ptrdiff_t>(word * 128 + 4),
                     gptq_column0.begin() + static_cast<std::ptrdiff_t>(word * 4)));
  }
  const TestCheckpoint awq = ArAwq();
  const std::vector<std::byte> awq_row0 = Hex("20643175 a8ecb9fd");
  CHECK(std::equal(awq_row0.begin(), awq_row0.end(), awq.tensors[0].bytes.begin()));
  for (const TestCheckpoint& stored : {gptq, awq}) {
    const Read read = ReadArModule(stored);
    CHECK(read.scheme == "w4a16 channel symmetric");
    CHECK(read.weights[0] == 8 * F16ToF32(0x2E66));
    CHECK(read.weights[7] == F16ToF32(0x2E66));
    CHECK(read.weights[8] == 0);
    CHECK(read.weights[15] == -7 * F16ToF32(0x2E66));
  }
}

TEST_CASE("packing_format and its aliases say how zero points are stored") {
  struct Case {
    std::string packing_format;
    unsigned zero_point;  // of fields that are 7
  };
  for (const Case& c : std::vector<Case>{{"auto_round:auto_gptq", 8},
                                         {"auto_round:gptq", 8},
                                         {"AUTO", 8},
                                         {"auto_round", 7},
                                         {"auto_round:gptqmodel", 7}}) {
    CAPTURE(c.packing_format);
    // Codes are (k + n) mod 16, 7.5 on average: either zero point is plausible.
    const Read read = ReadArModule(
        ArCheckpoint(ArGptqTensors(kArModule, ArNumbers(), 0x77), c.packing_format, false));
    CHECK(read.zero_point == c.zero_point);
    CHECK(read.scheme == "w4a16 channel asymmetric");
  }
  for (const char* packing_format : {"auto_round:auto_awq", "auto_round:awq"}) {
    AwqNumbers m = ArNumbers();
    m.zero_points.assign(32, 5);
    CHECK(ReadArModule(ArCheckpoint(AwqGemmTensors(kArModule, m), packing_format, false))
              .zero_point == 5);
  }
}

TEST_CASE("Without packing_format the legacy backend, or z - 1, is taken") {
  const auto read = [](const char* backend, const char* method) {
    TestCheckpoint stored = ArCheckpoint(ArGptqTensors(kArModule, ArNumbers(), 0x77), "", false);
    ArConfig(stored).erase("packing_format");
    ArConfig(stored)["quant_method"] = method;
    if (backend != nullptr) ArConfig(stored)["backend"] = backend;
    return ReadArModule(stored).zero_point;
  };
  CHECK(read(nullptr, "auto-round") == 8);
  CHECK(read(nullptr, "inc") == 8);
  CHECK(read("gptq:marlin", "auto-round") == 8);  // a hint for the run time
  CHECK(read("auto_round:gptq:exllamav2", "intel/auto-round") == 8);
  CHECK(read("auto_gptq:exllamav2", "intel/auto-round") == 8);
  CHECK(read("auto_round:exllamav2", "intel/auto-round") == 7);
  CHECK(read("auto_round:tritonv2", "intel/auto-round") == 7);

  AwqNumbers m = ArNumbers();
  m.zero_points.assign(32, 3);
  TestCheckpoint awq = ArCheckpoint(AwqGemmTensors(kArModule, m), "", false);
  ArConfig(awq).erase("packing_format");
  ArConfig(awq)["backend"] = "auto_round:awq:gemm";
  CHECK(ReadArModule(awq).zero_point == 3);
}

TEST_CASE("A legacy export without sym is what its zero points say") {
  const auto scheme = [](unsigned zeros) {
    TestCheckpoint stored = ArCheckpoint(ArGptqTensors(kArModule, ArNumbers(), zeros), "", false);
    ArConfig(stored) = {{"quant_method", "intel/auto-round"},
                        {"bits", 4},
                        {"group_size", 32},
                        {"backend", "auto_round:gptq:exllamav2"}};
    return ReadArModule(stored).scheme;
  };
  CHECK(scheme(0x77) == "w4a16 channel symmetric");
  CHECK(scheme(0x88) == "w4a16 channel symmetric");
  CHECK(scheme(0x66) == "w4a16 channel asymmetric");
}

TEST_CASE("sym is true by default, except in legacy exports") {
  TestCheckpoint stored = ArGptq();
  ArConfig(stored).erase("sym");
  CHECK(ReadArModule(stored).scheme == "w4a16 channel symmetric");
}

TEST_CASE("A symmetric module with the other constant is read, and reported") {
  TestCheckpoint stored =
      ArCheckpoint(ArGptqTensors(kArModule, ArNumbers(), 0x88), "auto_round:auto_gptq", true);
  CHECK(ReadArModule(stored).weights[0] == 8 * F16ToF32(0x2E66));
  CHECK(HasFinding(FindingsOf(stored), "gptq-zeros-other-version", ""));
  TestCheckpoint other =
      ArCheckpoint(ArGptqTensors(kArModule, ArNumbers(), 0x77), "auto_round", true);
  CHECK(HasFinding(FindingsOf(other), "gptq-zeros-other-version", ""));
}

constexpr const char* kModelFree = "autoround-model-free-zeros";

// An asymmetric module of weights around zero, whose zero point is 6.
AwqNumbers CentredAwq(uint64_t k) {
  AwqNumbers m{.n = 32, .k = k, .group_size = 32};
  for (uint64_t i = 0; i < m.n * m.k; ++i) m.codes.push_back(static_cast<uint8_t>(4 + i % 5));
  m.scales.assign(m.n * m.groups(), 0x2A66);
  return m;
}

// A calibration-free export of such modules; every byte of qzeros is `zeros`.
TestCheckpoint ModelFree(uint64_t k, unsigned zeros, size_t modules = 1) {
  TestCheckpoint stored =
      ArCheckpoint(ArGptqTensors(kArModule, CentredAwq(k), zeros), "auto_round", false);
  for (size_t i = 1; i < modules; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".mlp.up_proj";
    for (const auto& tensor : ArGptqTensors(name, CentredAwq(k), zeros)) {
      stored.tensors.push_back(tensor);
    }
  }
  ArConfig(stored)["model_free"] = true;
  return stored;
}

TEST_CASE("The weights of a calibration-free export tell whether its label is true") {
  const TestCheckpoint right = ModelFree(256, 0x66);
  CHECK(ReadArModule(right).zero_point == 6);
  CHECK(FindingsOf(right).empty());

  TestCheckpoint old = ModelFree(256, 0x55);
  CHECK(ReadArModule(old).zero_point == 6);
  CHECK(HasFinding(FindingsOf(old), kModelFree,
                   "(a mean of code - stored zero point of 1.000 over 8192 weights); prepack uses "
                   "z - 1 (if z is right, set packing_format to \"auto_round:gptqmodel\")"));
  // What the user says counts; so does a label that is right.
  ArConfig(old)["packing_format"] = "auto_round:gptqmodel";
  CHECK(testing::ReadEverything(old).id() == "gptq-zeros-contradict");
  ArConfig(old)["packing_format"] = "auto_round:auto_gptq";
  CHECK(ReadArModule(old).zero_point == 6);
  CHECK_FALSE(HasFinding(FindingsOf(old), kModelFree, ""));

  // The version is not asked where the weights tell.
  TestCheckpoint mended = ModelFree(256, 0x66);
  ArConfig(mended)["autoround_version"] = "0.15.1";
  CHECK(ReadArModule(mended).zero_point == 6);
  TestCheckpoint not_yet = ModelFree(256, 0x55);
  ArConfig(not_yet)["autoround_version"] = "0.16.0.dev3";
  CHECK(ReadArModule(not_yet).zero_point == 6);
}

TEST_CASE("Modules that are too small to be judged follow the whole calibration-free export") {
  CHECK(ReadArModule(ModelFree(64, 0x55, 3)).zero_point == 6);
  CHECK(HasFinding(FindingsOf(ModelFree(64, 0x55, 3)), kModelFree, "over 6144 weights"));
  CHECK(ReadArModule(ModelFree(64, 0x66, 3)).zero_point == 6);
  CHECK(FindingsOf(ModelFree(64, 0x66, 3)).empty());
}

TEST_CASE("Where the weights do not tell, the version of a calibration-free export does") {
  TestCheckpoint stored = ModelFree(64, 0x66);
  CHECK(ReadArModule(stored).zero_point == 6);
  CHECK(FindingsOf(stored).empty());
  ArConfig(stored)["autoround_version"] = "0.15.1";
  CHECK(ReadArModule(stored).zero_point == 7);
  CHECK(HasFinding(FindingsOf(stored), kModelFree,
                   "(AutoRound 0.15 stored them that way); prepack uses z - 1"));
  for (const char* version : {"0.16.0", "0.16.1", "1.0", "new"}) {
    ArConfig(stored)["autoround_version"] = version;
    CHECK(ReadArModule(stored).zero_point == 6);
    CHECK(FindingsOf(stored).empty());
  }
  // Without model_free the label is right.
  ArConfig(stored)["autoround_version"] = "0.15.1";
  ArConfig(stored).erase("model_free");
  CHECK(ReadArModule(stored).zero_point == 6);
}

TEST_CASE("A width that the tensors contradict is taken from them") {
  TestCheckpoint stored = ArGptq();
  ArConfig(stored)["bits"] = 2;
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.Module(kArModule).scheme().bits == 4);
  CHECK(HasFinding(opened.model.findings, "module-scheme-mismatch",
                   "the config says 2 bits, but the tensors hold 4"));
}

// 80 inputs of the model in two groups of 64: the last 48 are padding.
TestCheckpoint Padded() {
  AwqNumbers m{.n = 32, .k = 128, .group_size = 64};
  for (unsigned i = 0; i < 32 * 128; ++i) {
    m.codes.push_back(i % 128 < 80 ? static_cast<uint8_t>(i % 16) : 8);
  }
  m.scales.assign(64, 0x2A66);
  TestCheckpoint stored =
      ArCheckpoint(ArGptqTensors(kArModule, m, 0x77), "auto_round:auto_gptq", true);
  stored.config["hidden_size"] = 80;
  ArConfig(stored)["group_size"] = 64;
  ArConfig(stored)["model_free"] = true;
  return stored;
}

TEST_CASE("Padding of a calibration-free export is dropped") {
  const TempFolder folder;
  Padded().Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  const QuantizedLinear& linear = opened.Module(kArModule);
  CHECK(linear.k() == 80);
  CHECK(linear.groups() == 2);
  CHECK(
      testing::Codes(linear, {3, 1, 0, 80}) ==
      Hex("1032547698badcfe 1032547698badcfe 1032547698badcfe 1032547698badcfe 1032547698badcfe"));
  CHECK(HasFinding(opened.model.findings, "autoround-padded",
                   "stores 128 input channels, but the model has 80"));
  std::vector<std::byte> codes(64);
  testing::CheckError(linear.ReadCodes({0, 1, 0, 128}, codes), ErrorKind::kUsage,
                      "the panel does not fit the module");

  // Without model_free, or with another K, nothing is padded.
  TestCheckpoint stored = Padded();
  ArConfig(stored).erase("model_free");
  const TempFolder second;
  stored.Write(second.path());
  CHECK(MustOpen(second.path()).Module(kArModule).k() == 128);
}

TEST_CASE("Padding that holds weights is an error") {
  TestCheckpoint stored = Padded();
  // Word 12 holds inputs 96 … 103; channel 2.
  stored.At(kArModule + ".qweight").bytes[size_t{12 * 32 + 2} * 4] = std::byte{0x18};
  const Status status = testing::ReadEverything(stored);
  testing::CheckError(
      status, ErrorKind::kMalformed,
      "an input channel that the model does not have holds a weight (found code 1 at "
      "[2, 97], zero point 8");
  CHECK(status.id() == "autoround-padding");
}

TEST_CASE("A packing_format that the weights contradict is refused") {
  // Large enough to be judged by itself.
  const std::vector<testing::TestTensor> large = ArGptqTensors(kArModule, CentredAwq(256), 0x55);
  CHECK(ReadArModule(ArCheckpoint(large, "auto_round:auto_gptq", false)).zero_point == 6);
  const Status alone = testing::ReadEverything(ArCheckpoint(large, "auto_round", false));
  testing::CheckError(alone, ErrorKind::kMalformed,
                      "declares zero points as z (v2), but the weights say z - 1 (v1)");
  CHECK(alone.where() == kArModule);
  CHECK(alone.id() == "gptq-zeros-contradict");
  CHECK_THAT(alone.hint(), Catch::Contains("packing_format"));

  // Several that are large enough together.
  TestCheckpoint small =
      ArCheckpoint(ArGptqTensors(kArModule, CentredAwq(64), 0x55), "auto_round", false);
  testing::RequireOk(testing::ReadEverything(small));
  for (const char* name : {"gate_proj", "down_proj"}) {
    for (const auto& tensor :
         ArGptqTensors("model.layers.0.mlp." + std::string(name), CentredAwq(64), 0x55)) {
      small.tensors.push_back(tensor);
    }
  }
  const Status together = testing::ReadEverything(small);
  testing::CheckError(together, ErrorKind::kMalformed, "over 6144 weights");
  CHECK(together.where() == "config.json: quantization_config");
  CHECK(together.id() == "gptq-zeros-contradict");
}

// Four channels, whose zero points fit into one word at any width.
TestCheckpoint Narrow(uint64_t k, int bits) {
  AwqNumbers m{.n = 4, .k = k, .group_size = 32};
  for (uint64_t i = 0; i < m.n * m.k; ++i) m.codes.push_back(static_cast<uint8_t>(i % 16));
  m.scales.assign(m.n * m.groups(), 0x2A66);
  TestCheckpoint stored =
      ArCheckpoint(ArGptqTensors(kArModule, m, 0x77), "auto_round:auto_gptq", true);
  testing::TestTensor& zeros = stored.At(kArModule + ".qzeros");
  zeros.shape[1] = 1;
  zeros.bytes.assign(m.groups() * 4, bits == 8 ? std::byte{0x7F} : std::byte{0x77});
  ArConfig(stored)["bits"] = bits;
  return stored;
}

TEST_CASE("The width of a module of few channels is that which its groups allow") {
  CHECK(FindingsOf(Narrow(64, 4)).empty());
  // Eight bits a code would be 32 inputs, and one group instead of two.
  TestCheckpoint wrong = Narrow(64, 4);
  ArConfig(wrong)["bits"] = 8;
  CHECK(ReadArModule(wrong).scheme == "w4a16 group 32 symmetric");
  CHECK(HasFinding(FindingsOf(wrong), "module-scheme-mismatch",
                   "the config says 8 bits, but the tensors hold 4"));
  // One group either way: the config is believed.
  const TestCheckpoint either = Narrow(32, 8);
  CHECK(ReadArModule(either).weights.size() == 16);
  CHECK(ReadArModule(either).scheme == "w8a16 channel symmetric");
  CHECK(FindingsOf(either).empty());
}

TEST_CASE("A zero point of 0 that was borrowed from its neighbour is restored") {
  TestCheckpoint stored =
      ArCheckpoint(ArGptqTensors(kArModule, ArNumbers(), 0x66), "auto_round:auto_gptq", false);
  // Zero points 7, 0, 9, 15, 1, 0, 8, 3 less 0x11111111.
  const std::vector<std::byte> word = Hex("f6 e7 f0 26");
  std::ranges::copy(word, stored.At(kArModule + ".qzeros").bytes.begin());
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(testing::ZeroPoints(opened.Module(kArModule), 0, 9) ==
        std::vector<uint8_t>{7, 0, 9, 15, 1, 0, 8, 3, 7});
}

}  // namespace
}  // namespace prepack
