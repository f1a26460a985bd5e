#pragma once

// Tuning without measuring: runtimes that say how long a kernel took.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "prepack/tune/tune.h"
#include "temp_folder.h"

namespace prepack::testing {

class SaidKernel final : public PreparedKernel {
 public:
  SaidKernel(double seconds, bool is_reference) : seconds_(seconds), is_reference_(is_reference) {}
  const std::string& implementation() const override { return implementation_; }
  bool is_reference() const override { return is_reference_; }
  Result<double> Time() override { return seconds_; }

 private:
  const std::string implementation_ = "said";
  double seconds_;
  bool is_reference_;
};

// A kernel takes so many seconds per row, by layout; one of a layout that is not there cannot run.
class SaidRuntime final : public KernelRuntime {
 public:
  explicit SaidRuntime(std::map<std::string, double> seconds) : seconds_(std::move(seconds)) {}

  std::string name() const override { return "said 1.0"; }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const PackedModule& module, uint64_t rows,
                                                  uint64_t cold_bytes) override {
    const std::string layout(module.layout().id);
    prepared.insert({layout, module.request().n, module.request().k, rows});
    cold = cold_bytes;
    const auto found = seconds_.find(layout);
    if (found == seconds_.end()) return Unavailable("op", "the op is missing");
    return std::unique_ptr<PreparedKernel>(std::make_unique<SaidKernel>(
        found->second * static_cast<double>(rows), references.contains(layout)));
  }

  Result<std::unique_ptr<PreparedKernel>> PrepareExperts(const PackedModule& one,
                                                         const ExpertsInOneOp& mixture,
                                                         uint64_t rows, uint64_t) override {
    mixtures.insert({mixture.mixture, mixture.experts, mixture.top_k, rows});
    const auto found = seconds_.find(std::string(one.layout().id));
    if (found == seconds_.end()) return Unavailable("op", "the op is missing");
    return std::unique_ptr<PreparedKernel>(
        std::make_unique<SaidKernel>(10 * found->second * static_cast<double>(rows), false));
  }

  // What was asked for: mixture, experts, top_k, rows.
  std::multiset<std::tuple<std::string, uint64_t, uint64_t, uint64_t>> mixtures;
  std::set<std::string> references;
  // What was asked for: layout, N, K, rows; each time once.
  std::multiset<std::tuple<std::string, uint64_t, uint64_t, uint64_t>> prepared;
  uint64_t cold = 0;

 private:
  const std::map<std::string, double> seconds_;
};

// A CPU on which every kernel runs.
inline CpuFeatures EveryFeature() {
  CpuFeatures features;
  for (const CpuFeatureName& row : AllCpuFeatures()) {
    if (row.feature != CpuFeature::kAmxFp8) features.Add(row.feature);
  }
  return features;
}

inline TuneOptions TuneFixture(const std::string& checkpoint) {
  TuneOptions options;
  options.source = Fixture("checkpoints") / checkpoint;
  options.targets = {"onednn"};
  options.batches = {1, 8};
  options.seconds = 0.1;
  return options;
}

}  // namespace prepack::testing
