// vLLM's ops that run the experts of a layer on Arm, whole: kernel models stand for the layers, and
// the rest of each op is spelled out: the activation between them, and the sum over a token's
// experts.

#include <cmath>
#include <vector>

#include "catch.h"
#include "gemm/experts_file.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/isa.h"
#include "prepack/gemm/kernel_model.h"

namespace prepack::testing {
namespace {

constexpr float kAlpha = 1.702F;  // of swiglu-oai
constexpr float kLimit = 7.0F;

bool OnInput(const ExpertsFile& experts) {
  return experts.file().Metadata("router_weights_on_input") == "True";
}

bool IsSwigluOai(const ExpertsFile& experts) {
  return experts.file().Metadata("act") == "swigluoai";
}

// _C::dynamic_4bit_int_moe works in f32 where the op for linear layers takes no other type, and
// rounds each of its steps to the type that it works in.
class Int4Op {
 public:
  explicit Int4Op(const ExpertsFile& experts) : experts_(experts) {
    const bool groups = experts.file().Metadata("group_size") != "0";
    const bool widens = experts.dtype() == DType::kF16 || groups;
    work_ = widens ? DType::kF32 : experts.dtype();
  }

  std::vector<float> Predict() const {
    const std::vector<float> all = experts_.Run(
        work_, [&](uint64_t i) { return Input(i); },
        [&](std::span<const float> rows) { return Activate(rows); });
    return Sum(all);
  }

 private:
  float Round(float value) const { return RoundTo(work_, value); }
  float Weight(uint64_t choice) const { return Round(experts_.Weight(choice)); }

  std::vector<float> Input(uint64_t choice) const {
    std::vector<float> x(experts_.X(choice).begin(), experts_.X(choice).end());
    if (!OnInput(experts_)) return x;
    for (float& value : x) value = Round(value * Weight(choice));
    return x;
  }

  float Silu(float x) const {
    const auto power = static_cast<float>(std::exp(-static_cast<double>(x)));
    return Round(x / (1.0F + power));
  }

  // Gates are in the first half and ups in the other, whatever the activation.
  std::vector<float> Activate(std::span<const float> rows) const {
    std::vector<float> out;
    for (size_t j = 0; j < rows.size() / 2; ++j) {
      const float gate = rows[j];
      const float up = rows[rows.size() / 2 + j];
      out.push_back(Round(IsSwigluOai(experts_) ? Clamped(gate, up) : Silu(gate) * up));
    }
    return out;
  }

  float Clamped(float gate, float up) const {
    gate = std::min(gate, kLimit);
    up = std::max(std::min(up, kLimit), -kLimit);
    const float scaled = Round(gate * kAlpha);
    const auto power = static_cast<float>(std::exp(-static_cast<double>(scaled)));
    const float glu = Round(gate * Round(1.0F / (1.0F + power)));
    return Round(up + 1.0F) * glu;
  }

  // By experts in ascending order, and rounded each time.
  std::vector<float> Sum(const std::vector<float>& all) const {
    const uint64_t width = experts_.width();
    const DType out = experts_.dtype();
    std::vector<float> sums(experts_.tokens() * width);
    for (const uint64_t choice : experts_.ByExpert()) {
      for (uint64_t n = 0; n < width; ++n) {
        float y = all[choice * width + n];
        if (!OnInput(experts_)) y = Round(y * Weight(choice));
        float& sum = sums[choice / experts_.choices() * width + n];
        sum = RoundTo(out, sum + RoundTo(out, y));
      }
    }
    return sums;
  }

  const ExpertsFile& experts_;
  DType work_ = DType::kF32;
};

// _C::cpu_fused_moe_int8 and _C::cpu_fused_moe keep the outputs of both layers in f32.
class NeonOp {
 public:
  explicit NeonOp(const ExpertsFile& experts) : experts_(experts) {}

  std::vector<float> Predict() const {
    const std::vector<float> all = experts_.Run(
        DType::kF32, [&](uint64_t i) { return Input(i); },
        [&](std::span<const float> rows) { return Activate(rows); });
    const uint64_t width = experts_.width();
    std::vector<float> sums(experts_.tokens() * width);
    for (uint64_t i = 0; i < sums.size(); ++i) {
      const uint64_t first = i / width * experts_.choices();
      float sum = 0;
      for (uint64_t choice = first; choice < first + experts_.choices(); ++choice) {
        const float weight = OnInput(experts_) ? 1.0F : experts_.Weight(choice);
        const float y = all[choice * width + i % width];
        sum = std::fma(y, weight, sum);
      }
      sums[i] = RoundTo(experts_.dtype(), sum);
    }
    return sums;
  }

 private:
  // The router's weights are multiplied in before the op.
  std::vector<float> Input(uint64_t choice) const {
    std::vector<float> x(experts_.X(choice).begin(), experts_.X(choice).end());
    if (!OnInput(experts_)) return x;
    const float weight = RoundTo(experts_.dtype(), experts_.Weight(choice));
    for (float& value : x) value = RoundTo(experts_.dtype(), value * weight);
    return x;
  }

  // e^x as the op computes it: 2^n times a polynomial.
  static float Exp(float x) {
    if (std::abs(x) > 0x1.5d5e2ap+6F) return x > 0 ? INFINITY : 0.0F;
    const float n = std::round(x * 0x1.715476p+0F);
    const float rest = std::fma(-n, 0x1.7f7d1cp-20F, std::fma(-n, 0x1.62e4p-1F, x));
    const float square = rest * rest;
    const float high = std::fma(0x1.0e4020p-7F, rest, 0x1.573e2ep-5F);
    const float middle = std::fma(0x1.555e66p-3F, rest, 0x1.fffdb6p-2F);
    const float polynomial =
        std::fma(std::fma(high, square, middle), square, 0x1.ffffecp-1F * rest);
    const float power = std::ldexp(1.0F, static_cast<int>(n));
    return std::fma(polynomial, power, power);
  }

  static float Sigmoid(float x) { return 1.0F / (1.0F + Exp(-x)); }

  std::vector<float> Activate(std::span<const float> rows) const {
    const bool interleaved = IsSwigluOai(experts_);
    std::vector<float> out;
    for (size_t j = 0; j < rows.size() / 2; ++j) {
      const float gate = rows[interleaved ? 2 * j : j];
      const float up = rows[interleaved ? 2 * j + 1 : rows.size() / 2 + j];
      const float y = interleaved ? Clamped(gate, up) : up * (gate * Sigmoid(gate));
      out.push_back(RoundTo(experts_.dtype(), y));
    }
    return out;
  }

  static float Clamped(float gate, float up) {
    gate = std::min(gate, kLimit);
    up = std::max(std::min(up, kLimit), -kLimit);
    return (1.0F + up) * (gate * Sigmoid(gate * kAlpha));
  }

  const ExpertsFile& experts_;
};

// Of all files of a layout, with every instruction set.
struct OutputsOfOp {
  size_t files = 0;
  size_t outputs = 0;
  size_t different = 0;
};

template <typename Op>
OutputsOfOp CompareWithOp(std::string_view layout) {
  OutputsOfOp total;
  for (const auto& path : ExpertFilesOf(layout)) {
    const ExpertsFile experts(path);
    const std::vector<float> y = Floats(experts.file(), "y");
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      const std::vector<float> predicted = Op(experts).Predict();
      INFO(path.filename());
      REQUIRE(predicted.size() == y.size());
      for (size_t i = 0; i < y.size(); ++i) total.different += predicted[i] == y[i] ? 0U : 1U;
    }
    ++total.files;
    total.outputs += y.size();
  }
  return total;
}

TEST_CASE("every output of the op for 4-bit experts on Arm is predicted to the bit") {
  const OutputsOfOp total = CompareWithOp<Int4Op>("vllm-arm/int4-w4a8");
  CHECK(total.files == 11);
  CHECK(total.outputs == 3608);
  CHECK(total.different == 0);
}

TEST_CASE("every output of the op for int8 experts on Arm is predicted to the bit") {
  const OutputsOfOp total = CompareWithOp<NeonOp>("vllm-arm/int8-neon");
  CHECK(total.files == 8);
  CHECK(total.outputs == 3040);
  CHECK(total.different == 0);
}

// BFMMLA rounds what it adds to odd. Of these outputs, which are rounded to bf16 in the end, none
// shows it.
TEST_CASE("every output of the op for bf16 experts on Arm is predicted to the bit") {
  const OutputsOfOp total = CompareWithOp<NeonOp>("vllm-arm/bf16-neon");
  CHECK(total.files == 6);
  CHECK(total.outputs == 1376);
  CHECK(total.different == 0);
}

}  // namespace
}  // namespace prepack::testing
