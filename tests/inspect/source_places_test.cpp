// Where numbers lie is held against the readers: of each bit that is named for a number, flipping
// it changes that bit of that number, and nothing else of the module.

#include "prepack/model/quantized_linear.h"

#include <nlohmann/json.hpp>

#include "formats/awq_example.h"
#include "formats/ct_example.h"
#include "formats/gptq_example.h"
#include "formats/read_helpers.h"
#include "inspect/flipped_bits.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// Where input channel k comes in the order in which codes are delivered.
uint64_t PositionOf(const QuantizedLinear& linear, uint64_t k) {
  const SharedOrder order = Value(linear.KOrder());
  if (order->empty()) return k;
  return static_cast<uint64_t>(std::ranges::find(*order, static_cast<uint32_t>(k)) -
                               order->begin());
}

// A panel of the whole module with one bit of one code changed.
std::vector<std::byte> WithFlippedCode(const QuantizedLinear& linear, std::vector<std::byte> codes,
                                       uint64_t n, uint64_t position, uint32_t bit) {
  const CodeType code = linear.scheme().code;
  const uint64_t at = n * PanelRowBytes(code, linear.k()) * 8 + position * CodeBits(code) + bit;
  codes[at / 8] ^= static_cast<std::byte>(1U << (at % 8));
  return codes;
}

// Returns how many bits were flipped with a checkpoint that still could be read.
int CheckCode(const Checkpoint& checkpoint, const QuantizedLinear& linear, uint64_t n, uint64_t k) {
  const StoredBits where = linear.places()->WhereCode(n, k);
  const std::vector<std::byte> before = Codes(linear);
  const uint64_t position = PositionOf(linear, k);
  uint32_t bit_of_code = 0;
  int flipped = 0;
  for (const BitRun& run : where) {
    for (uint32_t i = 0; i < run.bits; ++i, ++bit_of_code) {
      CAPTURE(run.tensor, run.bit, i);
      const PanelRange near = linear.places()->CodesNear((run.bit + i) / 8);
      CHECK((near.n0 <= n && n < near.n0 + near.rows && near.k0 <= k && k < near.k0 + near.cols));
      const FlippedBit flip(checkpoint, run.tensor, run.bit + i);
      std::vector<std::byte> after(before.size());
      const Status status = linear.ReadCodes({0, linear.n(), 0, linear.k()}, after);
      // Bytes have codes that the scheme does not: more than its bits, FP8 NaN.
      if (!status.ok()) {
        CHECK(run.bits == 8);
        continue;
      }
      REQUIRE((after == WithFlippedCode(linear, before, n, position, bit_of_code)));
      ++flipped;
    }
  }
  const bool in_bytes = linear.scheme().bits < 8 && where.size() == 1 && where.front().bits == 8;
  CHECK((bit_of_code == linear.scheme().bits || in_bytes));
  return flipped;
}

// A low bit of a scale: it and those that are stored with it change, no other. Not the lowest, as
// reciprocals of neighbours may be the same number.
void CheckScale(const Checkpoint& checkpoint, const QuantizedLinear& linear, uint64_t n,
                uint64_t g) {
  const StoredBits where = linear.places()->WhereScale(n, g);
  REQUIRE(where.size() == 1);
  const std::vector<float> before = Scales(linear, 0, linear.n());
  const FlippedBit flip(checkpoint, where.front().tensor, where.front().bit + 2);
  const std::vector<float> after = Scales(linear, 0, linear.n());
  for (uint64_t i = 0; i < before.size(); ++i) {
    const bool is_it =
        linear.places()->WhereScale(i / linear.groups(), i % linear.groups()) == where;
    if ((before[i] != after[i]) != is_it) {
      CAPTURE(n, g, i);
      CHECK((before[i] != after[i]) == is_it);
    }
  }
}

// It and those that are stored with it change. Returns how many bits changed a zero point. Others
// make it one that is refused.
int CheckZeroPoint(const Checkpoint& checkpoint, const QuantizedLinear& linear, uint64_t n,
                   uint64_t g) {
  const std::vector<uint8_t> before = ZeroPoints(linear, 0, linear.n());
  const StoredBits where = linear.places()->WhereZeroPoint(n, g);
  int changed = 0;
  for (const BitRun& run : where) {
    for (uint32_t i = 0; i < run.bits; ++i) {
      const FlippedBit flip(checkpoint, run.tensor, run.bit + i);
      std::vector<uint8_t> after(before.size());
      if (!linear.ReadZeroPoints(0, linear.n(), after).ok()) continue;
      // A 0 that is stored as -1 borrows from its neighbours in the word.
      const uint64_t at = n * linear.groups() + g;
      if (linear.zeros_may_borrow() && (before[at] == 0 || after[at] == 0)) continue;
      for (uint64_t other = 0; other < before.size(); ++other) {
        const uint64_t channel = other / linear.groups();
        if (linear.places()->WhereZeroPoint(channel, other % linear.groups()) == where) {
          after[other] = before[other];
        }
      }
      CHECK((after == before));
      ++changed;
    }
  }
  return changed;
}

struct Checked {
  int codes = 0;
  int zero_points = 0;
};

Checked CheckModules(const std::filesystem::path& folder, size_t most_modules, int weights,
                     SplitMix64& random) {
  const OpenedModel opened = MustOpen(folder);
  Checked checked;
  const size_t step = std::max<size_t>(1, opened.model.modules.size() / most_modules);
  for (size_t i = 0; i < opened.model.modules.size(); i += step) {
    const QuantizedLinear& linear = *opened.model.modules[i];
    REQUIRE(linear.places() != nullptr);
    for (int weight = 0; weight < weights; ++weight) {
      const uint64_t n = random.Below(linear.n());
      const uint64_t k = random.Below(linear.k());
      const uint64_t g = random.Below(linear.groups());
      CAPTURE(linear.module(), n, k, g);
      checked.codes += CheckCode(*opened.checkpoint, linear, n, k);
      CheckScale(*opened.checkpoint, linear, n, g);
      if (!linear.scheme().symmetric) {
        checked.zero_points += CheckZeroPoint(*opened.checkpoint, linear, n, g);
      }
    }
  }
  return checked;
}

Checked CheckBuilt(const TestCheckpoint& checkpoint, int weights, SplitMix64& random) {
  const TempFolder temp;
  checkpoint.Write(temp.path());
  return CheckModules(temp.path(), 4, weights, random);
}

TEST_CASE("the bits of a weight are those that its reader reads, in checkpoints of every format") {
  SplitMix64 random(31);
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    if (!std::filesystem::is_directory(entry)) continue;
    CAPTURE(entry.path().string());
    const TempFolder temp;
    CopyFolder(entry.path(), temp / "copy");
    const Checked checked = CheckModules(temp / "copy", 2, 2, random);
    CHECK(checked.codes > 0);
  }
}

TEST_CASE("the bits of GPTQ weights of every width, straight and in planes") {
  SplitMix64 random(32);
  for (const bool planar : {false, true}) {
    for (const uint32_t bits : {2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
      if (!planar && bits >= 5 && bits <= 7) continue;  // are not stored so
      GptqExample x;
      x.n = 32;
      x.k = 96;
      x.bits = bits;
      x.group_size = 32;
      x.symmetric = false;
      x.planar = planar;
      x.stored_zeros = true;
      x.Randomize(bits, 1);
      if (bits == 4) x.Shuffle(5);
      CAPTURE(planar, bits);
      const Checked checked = CheckBuilt(MakeGptq(x), 12, random);
      CHECK(checked.codes == 12 * static_cast<int>(bits));
      CHECK(checked.zero_points > 0);
    }
  }
}

TEST_CASE("the bits of AWQ weights in all three orders") {
  SplitMix64 random(33);
  const AwqNumbers numbers = RandomAwqNumbers(32, 256, 64, random);
  const std::string& module = kAwqModule;
  const std::vector<std::pair<std::string, std::vector<TestTensor>>> stored = {
      {"gemm", AwqGemmTensors(module, numbers)},
      {"gemv", AwqGemvTensors(module, numbers)},
      {"gemv_fast", AwqGemvFastTensors(module, numbers)}};
  for (const auto& [version, tensors] : stored) {
    CAPTURE(version);
    const Checked checked = CheckBuilt(AwqCheckpoint(tensors, version, 64), 20, random);
    CHECK(checked.codes == 80);
    CHECK(checked.zero_points > 0);
  }
}

// Random words: any are codes. The number of words, and the version, say how they are packed.
TestCheckpoint OddBits(uint32_t bits, bool dense, SplitMix64& random) {
  constexpr uint64_t kN = 64;
  constexpr uint64_t kK = 64;
  const uint64_t words = dense ? kK * bits / 32 : CeilDiv(kK, 32 / bits);
  const auto fill = [&](uint64_t count) {
    std::vector<uint32_t> numbers(count);
    for (uint32_t& number : numbers) number = static_cast<uint32_t>(random.Next());
    return Words(numbers);
  };
  TestCheckpoint checkpoint;
  checkpoint.config = ExampleConfig(false);
  checkpoint.config["quantization_config"]["version"] = dense ? "0.19.0" : "0.17.0";
  Json& weights = ExampleWeights(checkpoint);
  weights["num_bits"] = bits;
  weights["group_size"] = 32;
  const std::string& module = kExampleModule;
  checkpoint.tensors = {
      {module + ".weight_packed", "I32", {kN, words}, fill(kN * words)},
      {module + ".weight_scale", "F32", {kN, 2}, Words(std::vector<uint32_t>(kN * 2, 0x3F800000))},
      {module + ".weight_zero_point", "I32", {words, 2}, fill(words * 2)},
      {module + ".weight_shape", "I64", {2}, Int64s({kN, kK})},
  };
  return checkpoint;
}

TEST_CASE("the bits of compressed-tensors weights that are no power of two, dense and in words") {
  SplitMix64 random(34);
  for (const uint32_t bits : {3U, 5U, 6U, 7U}) {
    for (const bool dense : {true, false}) {
      CAPTURE(bits, dense);
      const Checked checked = CheckBuilt(OddBits(bits, dense, random), 12, random);
      CHECK(checked.codes == 12 * static_cast<int>(bits));
      CHECK(checked.zero_points == 12 * static_cast<int>(bits));
    }
  }
}

}  // namespace
}  // namespace prepack::testing
