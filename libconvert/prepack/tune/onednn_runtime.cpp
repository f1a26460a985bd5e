// Measures oneDNN's primitives on packed modules.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/tune/runtime.h"
#include "prepack/verify/packed_operands.h"

namespace prepack {
namespace {

// Different numbers of an input; more than vary are repeated.
constexpr uint64_t kDistinctInputs = 4099;  // a prime: rows differ

std::vector<float> GaussianInputs(uint64_t count) {
  SplitMix64 random(1);
  std::vector<float> x(count);
  for (uint64_t i = 0; i < count; ++i) {
    x[i] = i < kDistinctInputs ? RoundTo(DType::kBF16, static_cast<float>(random.Gaussian()))
                               : x[i - kDistinctInputs];
  }
  return x;
}

uint64_t BytesOf(const PackedModule& module) {
  uint64_t bytes = 0;
  for (const PartSpec& part : module.parts()) {
    bytes += TensorBytes(part.dtype, part.shape).value_or(0);
  }
  return bytes;
}

class OneDnnKernel final : public PreparedKernel {
 public:
  explicit OneDnnKernel(std::unique_ptr<RepeatedProduct> product) : product_(std::move(product)) {}

  const std::string& implementation() const override { return product_->info().implementation; }
  bool is_reference() const override { return product_->info().is_reference; }

  Result<double> Time() override {
    const auto begin = std::chrono::steady_clock::now();
    PREPACK_TRY(product_->Run());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::unique_ptr<RepeatedProduct> product_;
};

class OneDnnRuntime final : public KernelRuntime {
 public:
  explicit OneDnnRuntime(GemmEngine& engine) : engine_(engine) {}

  std::string name() const override { return engine_.name(); }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const PackedModule& module, uint64_t rows,
                                                  uint64_t cold_bytes) override {
    PREPACK_TRY_ASSIGN(const LoadedOperands operands, LoadedOperands::Load(module));
    const std::vector<float> x = GaussianInputs(rows * module.request().k);
    const uint64_t copies = ColdCopies(BytesOf(module), cold_bytes);
    Result<std::unique_ptr<RepeatedProduct>> product = Unavailable("oneDNN", "nothing was made");
    PREPACK_TRY_ASSIGN(const PinnedBytes pinned, module.PinWeight());
    PREPACK_TRY(pinned.Visit([&](std::span<const std::byte> weight) {
      const PackedOperands packed = operands.With(weight);
      product = engine_.Repeat({.layout = module.layout().id,
                                .request = module.request(),
                                .packed = packed,
                                .input = {.m = rows, .dtype = InputDType(module), .x = x}},
                               copies);
    }));
    if (!product.ok()) return std::move(product).status();
    return std::unique_ptr<PreparedKernel>(std::make_unique<OneDnnKernel>(*std::move(product)));
  }

  // Not asked for: programs multiply experts one by one.
  Result<std::unique_ptr<PreparedKernel>> PrepareExperts(const PackedModule& one,
                                                         const ExpertsInOneOp& /*mixture*/,
                                                         uint64_t /*rows*/,
                                                         uint64_t /*cold_bytes*/) override {
    return Unsupported(one.layout().id, "oneDNN has no op for all experts of a layer");
  }

 private:
  GemmEngine& engine_;
};

}  // namespace

uint64_t ColdCopies(uint64_t module_bytes, uint64_t cold_bytes) {
  return std::max<uint64_t>(CeilDiv(cold_bytes, std::max<uint64_t>(module_bytes, 1)), 2);
}

std::unique_ptr<KernelRuntime> MakeOneDnnRuntime(GemmEngine& engine) {
  return std::make_unique<OneDnnRuntime>(engine);
}

}  // namespace prepack
