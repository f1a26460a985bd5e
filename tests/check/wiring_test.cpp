// Neurons of an MLP that was trained, and what becomes of them.

#include "prepack/check/wiring.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "check/check_run.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kNeurons = 160;
constexpr uint64_t kHidden = 256;

using Matrix = std::vector<double>;  // [kNeurons, kHidden]

// The three vectors of a neuron have a part in common, with either sign in gate; those of up and
// down are of one length.
struct Mlp {
  Matrix gate = Matrix(kNeurons * kHidden);
  Matrix up = gate;
  Matrix down = gate;  // by neuron

  explicit Mlp(uint64_t seed, bool trained = true) {
    SplitMix64 random(seed);
    for (uint64_t i = 0; i < kNeurons; ++i) {
      const double gate_length = std::exp(0.4 * random.Gaussian());
      const double length = std::exp(0.4 * random.Gaussian());
      const double sign = random.Gaussian() > 0 ? 0.02 : -0.02;
      for (uint64_t k = i * kHidden; k < (i + 1) * kHidden; ++k) {
        const double common = trained ? random.Gaussian() : 0;
        gate[k] = gate_length * (sign * common + 0.03 * random.Gaussian());
        up[k] = length * (0.02 * common + 0.03 * random.Gaussian());
        down[k] = length * (0.02 * common + 0.03 * random.Gaussian());
      }
    }
  }
};

NeuronVectors Vectors(const Matrix& matrix) {
  return MakeNeuronVectors(kNeurons, kHidden, {matrix.begin(), matrix.end()});
}

std::optional<WiringFault> Judged(const Mlp& mlp) {
  const NeuronVectors gate = Vectors(mlp.gate);
  const NeuronVectors up = Vectors(mlp.up);
  const NeuronVectors down = Vectors(mlp.down);
  return JudgeMlp({{{.name = "gate_proj", .vectors = &gate},
                    {.name = "up_proj", .vectors = &up},
                    {.name = "down_proj", .vectors = &down}}})
      .fault;
}

Matrix MovedByOne(const Matrix& matrix) {
  Matrix moved(matrix.end() - kHidden, matrix.end());
  moved.insert(moved.end(), matrix.begin(), matrix.end() - kHidden);
  return moved;
}

Matrix ReversedByEights(const Matrix& matrix) {
  Matrix reversed(matrix.size());
  for (size_t i = 0; i < matrix.size(); ++i) reversed[i] = matrix[i / 8 * 8 + 7 - i % 8];
  return reversed;
}

TEST_CASE("a trained MLP goes together, one that was not does not") {
  const Mlp mlp(1);
  CHECK(WiringOf(Vectors(mlp.gate), Vectors(mlp.up)) > 3);
  CHECK(std::abs(WiringOf(Vectors(mlp.gate), Vectors(MovedByOne(mlp.up))) - 1) < 0.15);
  CHECK_FALSE(Judged(mlp));
  const Mlp untrained(2, false);
  CHECK(std::abs(WiringOf(Vectors(untrained.gate), Vectors(untrained.up)) - 1) < 0.15);
  CHECK_FALSE(Judged(untrained));
}

TEST_CASE("rows and hidden channels in another order are found in each module") {
  for (const size_t module : {0U, 1U, 2U}) {
    CAPTURE(module);
    Mlp rows(1);
    Mlp channels(1);
    const auto part = [&](Mlp& mlp) -> Matrix& {
      return module == 0 ? mlp.gate : module == 1 ? mlp.up : mlp.down;
    };
    part(rows) = MovedByOne(part(rows));
    part(channels) = ReversedByEights(part(channels));
    const auto moved = Judged(rows);
    REQUIRE(moved);
    CHECK(moved->module == module);
    CHECK(moved->message.find("with its neurons moved") != std::string::npos);
    const auto reversed = Judged(channels);
    REQUIRE(reversed);
    CHECK(reversed->module == module);
    CHECK(reversed->message.find("with its hidden channels reversed by eights") !=
          std::string::npos);
    CHECK_FALSE(reversed->needs_peers);
  }
}

// What an order leaves of the wiring, because it leaves some channels where they are, hides
// nothing.
TEST_CASE("hidden channels that are interleaved are found in each module") {
  constexpr std::array<size_t, 8> kPlaces = {0, 2, 4, 6, 1, 3, 5, 7};
  for (const size_t module : {0U, 1U, 2U}) {
    CAPTURE(module);
    Mlp mlp(1);
    Matrix& part = module == 0 ? mlp.gate : module == 1 ? mlp.up : mlp.down;
    const Matrix stored = part;
    for (size_t i = 0; i < part.size(); ++i) part[i] = stored[i / 8 * 8 + kPlaces[i % 8]];
    CHECK(WiringOf(Vectors(mlp.gate), Vectors(mlp.up)) > 1.3);
    const auto fault = Judged(mlp);
    REQUIRE(fault);
    CHECK(fault->module == module);
    CHECK(fault->message.find("with its hidden channels interleaved the other way by") !=
          std::string::npos);
    CHECK_FALSE(fault->needs_peers);
  }
}

TEST_CASE("an up_proj that goes with gate_proj alone is found by it") {
  Mlp mlp(1);
  mlp.down = Mlp(3).down;
  REQUIRE(Judged(mlp));
  CHECK(Judged(mlp)->module == 2);
  mlp.up = ReversedByEights(mlp.up);
  const auto fault = Judged(mlp);
  REQUIRE(fault);
  CHECK(fault->module == 1);
  CHECK(fault->message.find("reversed by eights") != std::string::npos);
}

TEST_CASE("a module of another model is found, and that of gate only by other layers") {
  Mlp mlp(1);
  const Mlp other(3);
  mlp.up = other.up;
  const auto up = Judged(mlp);
  REQUIRE(up);
  CHECK(up->module == 1);
  CHECK_FALSE(up->needs_peers);
  CHECK(up->message.find("its neurons are not those of down_proj and gate_proj") !=
        std::string::npos);
  mlp.up = Mlp(1).up;
  mlp.gate = other.gate;
  const auto gate = Judged(mlp);
  REQUIRE(gate);
  CHECK(gate->module == 0);
  CHECK(gate->needs_peers);
}

TEST_CASE("gate and up that changed places are found by lengths and by signs") {
  Mlp exchanged(1);
  std::swap(exchanged.gate, exchanged.up);
  const auto fault = Judged(exchanged);
  REQUIRE(fault);
  CHECK(fault->exchanged);
  CHECK(fault->message.find("it is really the up_proj") != std::string::npos);
  // As AWQ does: it makes the rows of up small where it makes the columns of down large.
  Mlp smoothed(1);
  SplitMix64 random(4);
  for (uint64_t i = 0; i < kNeurons; ++i) {
    const double factor = std::exp(random.Gaussian());
    for (uint64_t k = i * kHidden; k < (i + 1) * kHidden; ++k) {
      smoothed.up[k] /= factor;
      smoothed.down[k] *= factor;
    }
  }
  CHECK_FALSE(Judged(smoothed));
  std::swap(smoothed.gate, smoothed.up);
  const auto by_sign = Judged(smoothed);
  REQUIRE(by_sign);
  CHECK(by_sign->exchanged);
}

TEST_CASE("values and outputs of an attention are judged by each other") {
  const Mlp mlp(1);
  const NeuronVectors v = Vectors(mlp.up);
  const NeuronVectors o = Vectors(mlp.down);
  const NeuronVectors wrong = Vectors(ReversedByEights(mlp.up));
  const NeuronVectors other = Vectors(Mlp(3).up);
  const auto judged = [&](const NeuronVectors& values) {
    return JudgePair({{{.name = "v_proj", .vectors = &values}, {.name = "o_proj", .vectors = &o}}});
  };
  CHECK_FALSE(judged(v));
  CHECK_FALSE(judged(other));  // some layers are like that
  REQUIRE(judged(wrong));
  CHECK(judged(wrong)->message.find("reversed by eights") != std::string::npos);
}

Matrix Transposed(const Matrix& matrix) {
  Matrix result(matrix.size());
  for (uint64_t i = 0; i < kNeurons; ++i) {
    for (uint64_t k = 0; k < kHidden; ++k) result[k * kNeurons + i] = matrix[i * kHidden + k];
  }
  return result;
}

// Layers of MLPs; that of number `layer` has the gate of another model.
TestCheckpoint MlpExample(int layers, int alien) {
  TestCheckpoint checkpoint = WideExample(0);
  checkpoint.config["num_hidden_layers"] = layers;
  checkpoint.config["hidden_size"] = kHidden;
  checkpoint.config["intermediate_size"] = kNeurons;
  for (int layer = 0; layer < layers; ++layer) {
    Mlp mlp(static_cast<uint64_t>(layer) + 1);
    if (layer == alien) mlp.gate = Mlp(99).gate;
    const std::string parent = "model.layers." + std::to_string(layer) + ".mlp.";
    AddQuantized(checkpoint, parent + "gate_proj", kHidden, mlp.gate);
    AddQuantized(checkpoint, parent + "up_proj", kHidden, mlp.up);
    AddQuantized(checkpoint, parent + "down_proj", kNeurons, Transposed(mlp.down));
  }
  return checkpoint;
}

struct Heads {
  uint64_t size = 0;
  uint64_t of_queries = 0;
  uint64_t of_values = 0;
};

// Of the heads of values, only every second one goes with the output.
void CheckHeads(const Heads& heads) {
  CAPTURE(heads.size);
  SplitMix64 random(7);
  const auto channel = [&] { return 0.03 * random.Gaussian(); };
  const uint64_t inputs = heads.of_queries * heads.size;
  Matrix v(heads.of_values * heads.size * kHidden);
  Matrix o(kHidden * inputs);
  std::ranges::generate(v, channel);
  std::ranges::generate(o, channel);
  for (uint64_t head = 1; head < heads.of_values; head += 2) {
    const uint64_t reader = head * (heads.of_queries / heads.of_values);
    for (uint64_t i = 0; i < heads.size; ++i) {
      for (uint64_t k = 0; k < kHidden; ++k) {
        o[k * inputs + reader * heads.size + i] += 2 * v[(head * heads.size + i) * kHidden + k];
      }
    }
  }
  const auto example = [&](const Matrix& values) {
    TestCheckpoint checkpoint = WideExample(0);
    checkpoint.config["num_hidden_layers"] = 1;
    checkpoint.config["hidden_size"] = kHidden;
    checkpoint.config["head_dim"] = heads.size;
    checkpoint.config["num_attention_heads"] = heads.of_queries;
    checkpoint.config["num_key_value_heads"] = heads.of_values;
    AddQuantized(checkpoint, "model.layers.0.self_attn.v_proj", kHidden, values);
    AddQuantized(checkpoint, "model.layers.0.self_attn.o_proj", inputs, o);
    return Lines(RunCheck(checkpoint));
  };
  CHECK(example(v).find("module-alien") == std::string::npos);
  CHECK(example(ReversedByEights(v))
            .find("module-alien: model.layers.0.self_attn.v_proj: its neurons do not match") !=
        std::string::npos);
}

TEST_CASE("every head of values is looked at") {
  CheckHeads({.size = 64, .of_queries = 4, .of_values = 2});
  CheckHeads({.size = 65, .of_queries = 32, .of_values = 32});  // begins at odd input channels
}

void ExchangeGateAndUp(TestCheckpoint& checkpoint, const std::string& parent) {
  for (const char* part : {".weight_packed", ".weight_scale"}) {
    std::swap(checkpoint.At(parent + "gate_proj" + part).bytes,
              checkpoint.At(parent + "up_proj" + part).bytes);
  }
}

TEST_CASE("a checkpoint is judged block by block") {
  RequireSound(RunCheck(MlpExample(4, -1)));
  RequireSound(RunCheck(MlpExample(1, 0)));  // no other layer tells
  RequireOnly(RunCheck(MlpExample(4, 2)), "module-alien",
              "model.layers.2.mlp.gate_proj: its neurons are not those of",
              CheckVerdict::kWarnings);
  TestCheckpoint exchanged = MlpExample(1, -1);
  ExchangeGateAndUp(exchanged, "model.layers.0.mlp.");
  RequireOnly(RunCheck(exchanged), "modules-exchanged", "gate_proj: it is really the up_proj",
              CheckVerdict::kWarnings);
}

TEST_CASE("a block is judged whose names lie between those of another one") {
  const std::string outer = "model.layers.0.mlp.";
  const std::string inner = outer + "extra.";  // after down_proj, before gate_proj
  for (const std::string& parent : {outer, inner}) {
    TestCheckpoint checkpoint = MlpExample(1, -1);
    const Mlp mlp(7);
    AddQuantized(checkpoint, inner + "gate_proj", kHidden, mlp.gate);
    AddQuantized(checkpoint, inner + "up_proj", kHidden, mlp.up);
    AddQuantized(checkpoint, inner + "down_proj", kNeurons, Transposed(mlp.down));
    ExchangeGateAndUp(checkpoint, parent);
    RequireOnly(RunCheck(checkpoint), "modules-exchanged",
                parent + "gate_proj: it is really the up_proj", CheckVerdict::kWarnings);
  }
}

}  // namespace
}  // namespace prepack::testing
