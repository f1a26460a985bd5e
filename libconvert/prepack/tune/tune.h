#pragma once

// Which layout is the fastest on this machine for the modules of this model, and what it costs.
//
//   plan         every target with every scheme: which layouts there are for each kind of module
//   sample       some modules of each kind, packed as a conversion packs them
//   time         of each different product once, by the kernel that a server runs, on weights that
//                no cache holds
//   accuracy     of their products, as `verify` computes it
//   choice       one candidate per kind, for a goal
//
// Nothing is estimated: a kernel that cannot run here has no figure, and a reason.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/cpu_features.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/convert/plan.h"
#include "prepack/tune/report.h"
#include "prepack/tune/runtime.h"

namespace prepack {

struct TuneOptions {
  std::filesystem::path source = {};
  std::vector<std::string> targets = {};
  std::vector<uint64_t> batches = {1, 8, 64, 512};
  unsigned threads = 0;  // of the server; 0: one per core
  uint64_t layers = 3;   // of each shape, whose accuracy is measured
  double seconds = 60;   // that running kernels may take, about
  std::optional<std::filesystem::path> activations = {};  // .safetensors: MODULE → x [M, K]
  std::filesystem::path python = {};                      // see FindPython
  std::optional<DType> activation_dtype = {};             // see PlanOptions
  Fallback fallback = Fallback::kKeep;
  AcceptedFindings accepted = {};
  TuneGoal goal = TuneGoal::kLatency;
  std::optional<double> min_sqnr_db = {};
};

// Are there kernels of the target that can be measured?
bool CanBeTuned(std::string_view target);

// The runtime of a target. Null: there is none here, and why.
struct TargetRuntime {
  std::string target = {};
  KernelRuntime* runtime = nullptr;
  std::string why_not = {};
};

// Pins the calling thread, and all that are started from here on, to the CPUs that are measured.
// kUsage for targets without kernels, or options that mean nothing; errors of reading the source
// and packing the sample. That nothing can be measured here is no error.
Result<TuneReport> Tune(const TuneOptions& options, Progress& progress);

// The same with these runtimes, and without pinning. `engine` computes the accuracy together with
// models of the kernels; null: models alone. `cpus` and the like are for the report.
struct TuneMachine {
  std::vector<TargetRuntime> runtimes = {};  // in the order of the targets
  GemmEngine* engine = nullptr;
  CpuFeatures features = {};  // of the CPU: kernels that need others are not run
  std::vector<unsigned> cpus = {};
  uint64_t cold_bytes = uint64_t{64} << 20;
  double bandwidth = 0;
  uint64_t memory_bytes = 0;  // that the server can have; 0: not known
};
Result<TuneReport> TuneOn(const TuneMachine& machine, const TuneOptions& options,
                          Progress& progress);

}  // namespace prepack
