// Digests that models make while they multiply, against their weights one by one.

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "gemm/kernel_model_file.h"
#include "gemm/nibble_module.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/gemm/kernel_model.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// Odd ones, never −2^15, and one more after an odd number of input channels.
DigestFactors RandomFactors(uint64_t k) {
  SplitMix64 random(k);
  DigestFactors factors;
  for (uint64_t i = 0; i < k; ++i) {
    factors.wide.push_back(static_cast<uint32_t>(random.Next()) | 1U);
    factors.narrow.push_back(static_cast<int16_t>(static_cast<uint16_t>(factors.wide.back())));
  }
  factors.wide.push_back(1);
  factors.narrow.push_back(1);
  return factors;
}

// Σ bits(w[k]) · factors[k] of every output channel, before scales that sums are multiplied with.
std::vector<uint32_t> DigestsOfWeights(const KernelModel& model, const PackedOperands& packed,
                                       const DigestFactors& factors) {
  std::vector<double> weights(packed.n * packed.k);
  model.Weights(0, weights);
  std::vector<uint32_t> digests(packed.n);
  for (uint64_t n = 0; n < packed.n; ++n) {
    for (uint64_t k = 0; k < packed.k; ++k) {
      const double weight = weights[n * packed.k + k] / model.WeightFactor(n, k);
      digests[n] += model.digests_integers()
                        ? static_cast<uint32_t>(std::lround(weight)) *
                              static_cast<uint32_t>(factors.narrow[k])
                        : std::bit_cast<uint32_t>(static_cast<float>(weight)) * factors.wide[k];
    }
  }
  return digests;
}

// Rows of which each has one input that is not zero, as most of verify's.
std::vector<float> HotRows(uint64_t m, uint64_t k) {
  std::vector<float> x(m * k);
  for (uint64_t row = 0; row < m; ++row) x[row * k + (row * 37 + 5) % k] = 1;
  return x;
}

void CheckDigests(const KernelModel& model, const PackedOperands& packed, uint64_t m) {
  const DigestFactors factors = RandomFactors(packed.k);
  const std::vector<uint32_t> expected = DigestsOfWeights(model, packed, factors);
  for (uint64_t n0 = 0; n0 < packed.n; n0 += kModelUnit) {
    for (const uint64_t most : {kModelUnit, 3 * kModelUnit, packed.n}) {
      const uint64_t rows = std::min(most, packed.n - n0);
      std::vector<float> y(m * rows);
      std::vector<uint32_t> digests(rows);
      RequireOk(model.RunAndDigest(n0, factors, y, digests));
      CHECK(std::ranges::equal(digests, std::span(expected).subspan(n0, rows)));
      std::vector<float> undigested(m * rows);
      RequireOk(model.Run(n0, undigested));
      CHECK(y == undigested);
    }
  }
}

TEST_CASE("digests are those of the weights, however the channels are divided") {
  for (const std::string_view layout : ModelledLayouts()) {
    for (const auto& path : GoldenFilesOf(std::string(layout))) {
      const KernelModelFile golden(path);
      // Of scales that kernels take for zero, nothing shows the weights.
      if (golden.name.find("subnormal-scales") != std::string::npos) continue;
      INFO("file " << golden.name);
      const std::vector<float> hot = HotRows(golden.input.m, golden.packed.k);
      ModelInput one_hot = golden.input;
      one_hot.x = hot;
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        INFO(IsaName(isa));
        for (const ModelInput& input : {golden.input, one_hot}) {
          const auto model = Value(MakeKernelModel(layout, golden.packed, input));
          CheckDigests(*model, golden.packed, input.m);
        }
      }
    }
  }
}

// No software writes these.
TEST_CASE("digests of oneDNN's 4-bit rows, of any number of output channels") {
  const uint64_t n = GENERATE(as<uint64_t>{}, 2, 34, 64, 100, 130, 192, 256, 326);
  const auto [k, group_size] =
      GENERATE(std::pair<uint64_t, uint64_t>{9, 9}, std::pair<uint64_t, uint64_t>{192, 64},
               std::pair<uint64_t, uint64_t>{300, 150});
  const bool symmetric = GENERATE(true, false);
  const std::string layout = GENERATE("onednn/w4a16", "onednn/w4a8");
  INFO(layout << ", N " << n << ", K " << k << ", symmetric " << symmetric);
  const NibbleModule module(4, n, k, group_size, symmetric);
  const std::vector<float> x = HotRows(4, k);
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    INFO(IsaName(isa));
    ModelInput input;
    input.m = 4;
    input.x = x;
    const auto model = Value(MakeKernelModel(layout, module.packed, input));
    CheckDigests(*model, module.packed, 4);
  }
}

}  // namespace
}  // namespace prepack::testing
