#include "model_rates.h"

#include <fmt/format.h>
#include <ctime>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/reference.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/truth.h"
#include "sample_checkpoint.h"
#include "scratch_folder.h"

namespace prepack::bench {
namespace {

constexpr uint64_t kInputs = 14336;
constexpr uint64_t kChannels = 256;  // of a model
constexpr uint64_t kGroup = 128;
constexpr int kRuns = 5;

// Of this thread on a CPU: what others do on the machine counts less than by the clock on the wall.
double SecondsOfThread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double ReferenceSeconds(uint64_t m, uint64_t n) {
  const std::vector<double> x(m * kInputs, 0.5);
  const std::vector<double> w(n * kInputs, 0.25);
  std::vector<double> y(m * n);
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = SecondsOfThread();
    ReferenceGemm(m, n, kInputs, x, w, y);
    best = std::min(best, SecondsOfThread() - begin);
  }
  return best;
}

// The first kind of module that the layout takes.
std::optional<PackRequest> Module(const Layout& layout) {
  for (const Scheme& scheme : ProbeSchemes(kChannels, kInputs, kGroup)) {
    PackRequest request;
    request.scheme = scheme;
    request.n = kChannels;
    request.k = kInputs;
    SetModuleKind(layout, request);
    if (layout.eligible(request).ok) return request;
  }
  return std::nullopt;
}

// A packed module with any codes, and scales that are about 1 in every type.
class RandomModule {
 public:
  RandomModule(const Layout& layout, const PackRequest& request) {
    operands_.n = request.n;
    operands_.k = request.k;
    operands_.group_size = request.scheme.group_size;
    operands_.block_rows = request.scheme.scale_rows;
    for (const PartSpec& part : layout.Parts(request)) Add(part);
  }
  const PackedOperands& operands() const { return operands_; }

 private:
  void Add(const PartSpec& part) {
    uint64_t bytes = DTypeBits(part.dtype) / 8;
    for (const uint64_t size : part.shape) bytes *= size;
    std::vector<std::byte>& data = parts_.emplace_back(bytes);
    const bool scale = part.role == PartRole::kScale;
    for (uint64_t i = 0; i < bytes; ++i) {
      constexpr std::array kOne = {std::byte{0x80}, std::byte{0x3F}};  // in BF16
      // No NaN in FP8.
      data[i] = scale ? kOne[i % 2] : static_cast<std::byte>(random_.Below(256)) & std::byte{0xBF};
    }
    if (part.role == PartRole::kWeight) operands_.weight = data;
    if (part.role == PartRole::kZeroPoint) operands_.zero_point = data;
    if (part.role == PartRole::kWeightSum) operands_.weight_sum = data;
    if (scale) {
      operands_.scale = data;
      operands_.scale_dtype = part.dtype;
    }
  }

  SplitMix64 random_{1};
  std::vector<std::vector<std::byte>> parts_;
  PackedOperands operands_;
};

// Billions of multiply-adds per second; 0 when there is no model for the module.
double ModelRate(const Layout& layout, const PackedOperands& operands, uint64_t m) {
  SplitMix64 random(2);
  std::vector<float> x(m * kInputs);
  for (float& value : x) value = RoundTo(DType::kBF16, static_cast<float>(random.Gaussian()));
  const Result<std::unique_ptr<KernelModel>> model =
      MakeKernelModel(layout.id, operands, {.m = m, .dtype = DType::kBF16, .x = x});
  if (!model.ok()) {
    fmt::print(stderr, "{}\n", model.status().ToString());
    return 0;
  }
  std::vector<float> y(m * kChannels);
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = SecondsOfThread();
    if (!(*model)->Run(0, y).ok()) std::exit(4);
    best = std::min(best, SecondsOfThread() - begin);
  }
  return static_cast<double>(m * kChannels * kInputs) / best / 1e9;
}

// Nanoseconds per weight.
struct TruthCost {
  double decode = 0;
  double exact = 0;
  double kernel = 0;
};

TruthCost CostOf(const SecondDecoder& decoder, const std::string& module) {
  PackRequest request;
  request.n = kChannels;
  request.k = kInputs;
  DecodedRows decoded;
  std::vector<double> weights(kChannels * kInputs);
  TruthCost best{.decode = 1e9, .exact = 1e9, .kernel = 1e9};
  for (int run = 0; run < kRuns; ++run) {
    const double begin = SecondsOfThread();
    if (!decoder.Decode(module, kInputs, 0, kChannels, decoded).ok()) std::exit(4);
    const double exact = SecondsOfThread();
    FillExactWeights(decoded, weights);
    const double kernel = SecondsOfThread();
    FillKernelWeights(WeightRounding::kToBF16, Layout{}, request, decoded, weights);
    const double end = SecondsOfThread();
    best.decode = std::min(best.decode, exact - begin);
    best.exact = std::min(best.exact, kernel - exact);
    best.kernel = std::min(best.kernel, end - kernel);
  }
  const double per_weight = 1e9 / static_cast<double>(weights.size());
  return {.decode = best.decode * per_weight,
          .exact = best.exact * per_weight,
          .kernel = best.kernel * per_weight};
}

}  // namespace

void PrintReferenceRates() {
  constexpr uint64_t kRows = 64;
  fmt::print("f64 reference, {} rows, K = {}\n{:<11}{:>9}{:>10}\n", kRows, kInputs, "isa",
             "channels", "GFLOP/s");
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const uint64_t n : std::array<uint64_t, 4>{32, 64, 128, 256}) {
      const double flops = 2.0 * static_cast<double>(kRows * n * kInputs);
      fmt::print("{:<11}{:>9}{:>10.1f}\n", IsaName(isa), n,
                 flops / ReferenceSeconds(kRows, n) / 1e9);
    }
  }
}

void PrintModelRates() {
  fmt::print("{:<25}{:<11}{:>15}{:>20}\n", "model of", "isa", "GMAC/s, 64 rows",
             "ns/weight, 1 row");
  for (const Layout& layout : AllLayouts()) {
    const std::optional<PackRequest> request = Module(layout);
    if (!request) continue;
    const RandomModule module(layout, *request);
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      const double many = ModelRate(layout, module.operands(), 64);
      const double one = ModelRate(layout, module.operands(), 1);
      if (many == 0 || one == 0) continue;
      fmt::print("{:<25}{:<11}{:>15.1f}{:>20.2f}\n", layout.id, IsaName(isa), many, 1 / one);
    }
  }
}

void PrintTruthRates() {
  fmt::print("{:<26}{:>9}{:>13}{:>17}\n", "ns/weight", "decoding", "exact to f64",
             "as bf16 to f64");
  for (const SampleFormat& format : SampleFormats()) {
    const ScratchFolder scratch;
    if (!WriteSample(scratch.path(), format, kChannels, kInputs, 1).ok()) std::exit(4);
    const Result<Checkpoint> source = Checkpoint::Open(scratch.path());
    if (!source.ok()) std::exit(4);
    const Result<QuantizedModel> model = ReadQuantizedModel(*source);
    if (!model.ok()) std::exit(4);
    const Result<SecondDecoder> decoder = SecondDecoder::Make(*source, model->format);
    if (!decoder.ok()) std::exit(4);
    const TruthCost cost = CostOf(*decoder, std::string(model->modules.front()->module()));
    fmt::print("{:<26}{:>9.2f}{:>13.2f}{:>17.2f}\n", format.name, cost.decode, cost.exact,
               cost.kernel);
  }
}

}  // namespace prepack::bench
