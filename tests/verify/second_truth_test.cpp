// The second decoders against what independent implementations made of real checkpoints, and
// against the readers that they are a check of.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "golden_file.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/model/dequantized_linear.h"
#include "status_matchers.h"
#include "verify/second_weights.h"

namespace prepack::testing {
namespace {

// The three forms of AWQ hold the same numbers.
std::string TruthOf(const std::string& checkpoint) {
  return checkpoint.starts_with("awq-") ? "awq-gemm-g128" : checkpoint;
}

void CheckModule(const SecondDecoder& decoder, const QuantizedLinear& module,
                 const GoldenFile& truth, bool divides) {
  const std::string name(module.module());
  CAPTURE(name);
  CHECK(SecondWeights(decoder, name, module.k(), 0, 16) ==
        truth.Values<float>(name + ".rows_first16"));
  CHECK(SecondWeights(decoder, name, module.k(), module.n() - 16, 16) ==
        truth.Values<float>(name + ".rows_last16"));
  // Rows that begin inside a word.
  std::vector<float> expected(5 * module.k());
  DequantizeBuffers buffers;
  RequireOk(DequantizeRows(module, 21, 5, buffers, expected));
  const std::vector<float> found = SecondWeights(decoder, name, module.k(), 21, 5);
  REQUIRE(found.size() == expected.size());
  // Where scales divide, the canonical layout has their reciprocal, rounded.
  const double tolerance = divides ? 0x1p-22 : 0;
  const auto far = std::ranges::mismatch(found, expected, [&](double a, double b) {
    return std::abs(a - b) <= tolerance * std::abs(b);
  });
  CHECK((far.in1 == found.end()));
  DecodedRows decoded;
  CHECK_FALSE(decoder.Decode(name, module.k(), module.n() - 1, 2, decoded).ok());
}

TEST_CASE("second decoders give the dequantized truth of every real checkpoint") {
  size_t checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    const std::string checkpoint = entry.path().filename().string();
    CAPTURE(checkpoint);
    const Checkpoint source = Value(Checkpoint::Open(entry.path()));
    const QuantizedModel model = Value(ReadQuantizedModel(source));
    const SecondDecoder decoder = Value(SecondDecoder::Make(source, model.format));
    const GoldenFile truth(Fixture("truth/" + TruthOf(checkpoint) + ".safetensors"));
    REQUIRE(model.modules.size() >= 3);
    const bool divides = checkpoint.starts_with("gptqmodel-fp8-");
    for (const auto& module : model.modules) CheckModule(decoder, *module, truth, divides);
    ++checkpoints;
  }
  CHECK(checkpoints >= 35);
}

// Slabs at the beginning, inside and at the end, of rows that begin inside a word.
void CheckSlabs(const SecondDecoder& decoder, const QuantizedLinear& module) {
  constexpr uint64_t kFirst = 21;
  constexpr uint64_t kRows = 5;
  const std::string name(module.module());
  CAPTURE(name);
  const uint64_t k = module.k();
  const std::vector<float> all = SecondWeights(decoder, name, k, kFirst, kRows);
  for (const InputSlab& slab : {InputSlab{.k0 = 0, .inputs = kSecondInputsUnit},
                                InputSlab{.k0 = 2 * kSecondInputsUnit, .inputs = 128},
                                InputSlab{.k0 = kSecondInputsUnit, .inputs = k - 64}}) {
    DecodedRows decoded;
    RequireOk(decoder.DecodeSlab(name, k, slab, kFirst, kRows, decoded));
    REQUIRE(decoded.inputs() == slab.inputs);
    std::vector<float> expected;
    for (uint64_t row = 0; row < kRows; ++row) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * k + slab.k0);
      expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(slab.inputs));
    }
    CHECK(WeightsOf(decoded) == expected);
  }
}

TEST_CASE("a slab of input channels is decoded as part of all of them") {
  size_t modules = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    CAPTURE(entry.path().filename().string());
    const Checkpoint source = Value(Checkpoint::Open(entry.path()));
    const QuantizedModel model = Value(ReadQuantizedModel(source));
    const SecondDecoder decoder = Value(SecondDecoder::Make(source, model.format));
    for (const auto& module : model.modules) {
      if (module->k() < 256 || module->n() < 26) continue;
      CheckSlabs(decoder, *module);
      ++modules;
    }
  }
  CHECK(modules >= 200);
}

}  // namespace
}  // namespace prepack::testing
