#pragma once

// The real matrix multiplication that verify runs: oneDNN's, on packed weights as they lie in the
// file where oneDNN is the consumer, and on unpacked weights everywhere else.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// y[M, N] = x[M, K] · W[N, K]ᵀ, all f32, dense and row-major; the caller owns them.
struct FloatProblem {
  uint64_t m = 0;
  uint64_t n = 0;
  uint64_t k = 0;
  std::span<const float> x;
  std::span<const float> w;
};

// kUsage when a size is zero or an array has another size than the problem says. Every engine
// begins with it.
Status CheckProblem(const FloatProblem& problem, std::span<const float> y);

// A packed module of a layout that oneDNN reads, and what it is to be multiplied with.
struct PackedProblem {
  std::string_view layout;     // its id, for messages
  const PackRequest& request;  // the module
  const PackedOperands& packed;
  ModelInput input;
  // Multiply a copy of the weights in the form that oneDNN wants here, where the packed form is
  // another one.
  bool repack = false;
};

// What ran, for the report.
struct GemmInfo {
  std::string implementation;   // "brg_matmul:avx2"
  std::string activation_type;  // "bf16", or "f32 (bf16 values)" where the CPU has no bf16 kernel
  // Weights of 4 bits times their scale are rounded to bf16 before they are multiplied.
  bool rounds_weights_to_bf16 = false;
  // oneDNN's portable fallback: right, but thousands of times slower.
  bool is_reference = false;
};

// A product that is run again and again, to be measured. The packed operands lie in several places,
// which take turns: if those are together larger than the caches, weights come from memory every
// time, as in a model of many layers.
class RepeatedProduct {
 public:
  RepeatedProduct() = default;
  RepeatedProduct(const RepeatedProduct&) = delete;
  RepeatedProduct& operator=(const RepeatedProduct&) = delete;
  virtual ~RepeatedProduct() = default;

  virtual const GemmInfo& info() const = 0;
  // Runs the primitive alone: activations were quantized before, and y is not rounded afterwards.
  virtual Status Run() = 0;
};

// Safe from any thread: one multiplication runs at a time, on oneDNN's own threads.
class GemmEngine {
 public:
  virtual ~GemmEngine() = default;
  // "onednn 3.13.2"
  virtual std::string name() const = 0;
  // Fills y [M, N].
  virtual Result<GemmInfo> MultiplyFloats(const FloatProblem& problem, std::span<float> y) = 0;
  // Fills y [M, N] with what the consumer would get: scaled, with the bias, rounded to the type of
  // the activations. The primitive is given the packed weight where it lies: no copy, no reorder.
  //
  // kUnsupported when it wants the weights in another form here than they are packed in (another
  // CPU or version of oneDNN), with both forms; kUnavailable when it has no primitive for them.
  virtual Result<GemmInfo> MultiplyPacked(const PackedProblem& problem, std::span<float> y) = 0;
  // The same without multiplying; `problem` needs no activations but their number.
  virtual Result<GemmInfo> DescribePacked(const PackedProblem& problem) = 0;
  // Prepares all that a consumer prepares once. `copies` of the operands, at least one, are made;
  // those of the problem are not needed afterwards. Takes plain/bf16, too. The errors of
  // MultiplyPacked. Not safe from several threads, and the engine must live longer.
  virtual Result<std::unique_ptr<RepeatedProduct>> Repeat(const PackedProblem& problem,
                                                          uint64_t copies) = 0;
};

// oneDNN on the CPU; kUnavailable when the program was built without it or no engine can be made
// here, with the reason.
Result<std::unique_ptr<GemmEngine>> MakeOneDnnEngine();

}  // namespace prepack
