#include "prepack/check/plain_statistics.h"

#include <string>
#include <vector>

#include "catch.h"
#include "check/check_run.h"
#include "check/wide_example.h"

namespace prepack::testing {
namespace {

TestCheckpoint WithTensor(const std::string& name, const std::string& dtype, const std::string& hex,
                          uint64_t values) {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.tensors.push_back({name, dtype, {values}, Hex(hex)});
  return checkpoint;
}

TEST_CASE("NaN and infinity are counted in every dtype") {
  struct Case {
    DType dtype;
    std::string hex;  // the largest number, infinity, minus infinity, NaN, 1
  };
  const std::vector<Case> cases = {
      {DType::kF16, "ff7b 007c 00fc 017e 003c"},
      {DType::kBF16, "7f7f 807f 80ff c07f 803f"},
      {DType::kF32, "ffff7f7f 0000807f 000080ff 0100c07f 0000803f"},
      {DType::kF64,
       "ffffffffffffef7f 000000000000f07f 000000000000f0ff 010000000000f87f 000000000000f03f"},
  };
  for (const Case& c : cases) {
    INFO(DTypeName(c.dtype));
    CHECK(CountNotFinite(c.dtype, Hex(c.hex)) == 3);
    const size_t each = DTypeBits(c.dtype) / 8;
    const std::vector<std::byte> bytes = Hex(c.hex);
    const std::vector<uint64_t> expected = {0, 1, 1, 1, 0};
    for (size_t i = 0; i < 5; ++i) {
      CHECK(CountNotFinite(c.dtype, std::span(bytes).subspan(i * each, each)) == expected[i]);
    }
  }
}

TEST_CASE("A norm or a bias with NaN is bad, though its structure is sound") {
  const TestCheckpoint norm = WithTensor("model.norm.weight", "BF16", "80 3f c0 7f 80 ff 80 3f", 4);
  RequireOnly(RunCheck(norm), "value-not-finite",
              "model.safetensors: tensor model.norm.weight: 2 of 4 values are NaN or infinite, "
              "first number 1",
              CheckVerdict::kBadValues);
  CHECK(CheckExitCode(RunCheck(norm).verdict, false) == 1);
  // Values are data.
  RequireSound(RunCheck(norm, nullptr, true));
}

TEST_CASE("Masks may be infinite, and integers have no NaN") {
  RequireSound(RunCheck(WithTensor("model.causal_mask", "F32", "00 00 80 ff", 1)));
  RequireSound(RunCheck(WithTensor("model.positions", "I16", "c0 7f", 1)));
}

TEST_CASE("Tensors of quantized modules are left to their readers") {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.At(WideModule(0) + ".weight_scale").bytes[1] = std::byte{0x7F};
  checkpoint.At(WideModule(0) + ".weight_scale").bytes[0] = std::byte{0xC0};
  RequireOnly(RunCheck(checkpoint), "scale-not-finite", "found NaN", CheckVerdict::kBadValues);
}

TEST_CASE("A tensor of several pieces is one finding, by any number of threads") {
  TestCheckpoint checkpoint = WideExample();
  const uint64_t values = 1'500'000;  // of 2 bytes: three pieces
  std::vector<std::byte> bytes = WideValues(values);
  for (const uint64_t bad : {700'001U, 700'002U, 1'499'999U}) PutBF16(bytes, bad, INFINITY);
  checkpoint.tensors.push_back({"model.embed_tokens.weight", "BF16", {values / 4, 4}, bytes});
  checkpoint.config.erase("hidden_size");
  checkpoint.config.erase("vocab_size");
  for (const unsigned jobs : {1U, 4U}) {
    const CheckReport report = RunCheck(checkpoint, nullptr, false, jobs);
    RequireOnly(report, "value-not-finite",
                "3 of 1500000 values are NaN or infinite, first number 700001",
                CheckVerdict::kBadValues);
  }
}

TEST_CASE("Progress counts the bytes that are not quantized") {
  const TempFolder folder;
  WithTensor("model.norm.weight", "BF16", "80 3f 80 3f", 2).Write(folder.path());
  Progress progress;
  Value(
      Check({.source = folder.path(), .baseline = {}, .headers_only = false, .jobs = 1}, progress));
  CHECK(progress.total() == 4);
  CHECK(progress.done() == 4);
}

}  // namespace
}  // namespace prepack::testing
