#pragma once

// What runs the kernels of a target, to be measured: oneDNN in this process, or a program that has
// the ops of vLLM and zentorch.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "prepack/base/status.h"
#include "prepack/gemm/engine.h"
#include "prepack/packed/folder.h"
#include "prepack/tune/measure.h"

namespace prepack {

// A kernel with its operands.
class PreparedKernel : public TimedProduct {
 public:
  // What runs: "brg_matmul:avx2", "_C::cpu_gemm_wna16".
  virtual const std::string& implementation() const = 0;
  // The fallback of a library that has no kernel for it here: right, but slow beyond use.
  virtual bool is_reference() const = 0;
};

// All experts of a layer, in one op. A folder holds some of them, which stand for the others.
struct ExpertsInOneOp {
  std::string mixture = {};  // its name, "model.layers.0.mlp.experts"
  uint64_t experts = 0;
  uint64_t top_k = 0;  // for each row of activations, as evenly spread as they go
};

// An error that concerns only one candidate; any other ends the run.
inline bool IsOfOneCandidate(const Status& status) {
  return status.kind() == ErrorKind::kUnsupported || status.kind() == ErrorKind::kUnavailable;
}

class KernelRuntime {
 public:
  KernelRuntime() = default;
  KernelRuntime(const KernelRuntime&) = delete;
  KernelRuntime& operator=(const KernelRuntime&) = delete;
  virtual ~KernelRuntime() = default;

  // "onednn 3.13.2"
  virtual std::string name() const = 0;
  // For `rows` rows of activations, on copies of the packed module that together take `cold_bytes`
  // or more. The runtime must live longer than the kernel, and may have one kernel at a time for
  // each layout. kUnavailable and kUnsupported: it does not run here, with the reason.
  virtual Result<std::unique_ptr<PreparedKernel>> Prepare(const PackedModule& module, uint64_t rows,
                                                          uint64_t cold_bytes) = 0;
  // The same of all experts of a layer, for runtimes that run them in one op; `one` is a module of
  // theirs.
  virtual Result<std::unique_ptr<PreparedKernel>> PrepareExperts(const PackedModule& one,
                                                                 const ExpertsInOneOp& mixture,
                                                                 uint64_t rows,
                                                                 uint64_t cold_bytes) = 0;
};

// oneDNN's primitives. The engine must live longer.
std::unique_ptr<KernelRuntime> MakeOneDnnRuntime(GemmEngine& engine);

// The ops of vLLM and zentorch, in a child that runs prepack_vllm.measure with this interpreter, on
// so many threads. kUnavailable where that cannot be, with the reason.
Result<std::unique_ptr<KernelRuntime>> StartPythonRuntime(const std::filesystem::path& python,
                                                          unsigned threads);

// How many copies of a module take so many bytes; at least two.
uint64_t ColdCopies(uint64_t module_bytes, uint64_t cold_bytes);

}  // namespace prepack
