#pragma once

// Part of the module with oneDNN: see gemm/onednn/engine.h. The matmul primitives of the layouts
// that oneDNN reads, on packed weights where they lie.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <dnnl.hpp>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/gemm/activation_quantizers.h"
#include "prepack/gemm/engine.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// A primitive for a packed module. All functions throw what oneDNN throws.
struct PackedPlan {
  dnnl::matmul::primitive_desc primitive;
  GemmInfo info;
  bool repacks = false;  // the primitive wants another form than the packed one
};

using OneDnnArguments = std::unordered_map<int, dnnl::memory>;

// The arguments of one execution, and the memory of those that are made for it. They stay where
// they are when it is moved. x of f32, and y of f32, are the caller's.
struct PackedExecution {
  QuantizedRows quantized;
  std::vector<int8_t> s8;
  std::vector<uint16_t> bf16;
  // Static scale and zero point of the activations.
  std::vector<float> input_scale;
  std::vector<int32_t> input_zero_point;
  std::vector<std::byte> stored;  // y, where the primitive does not write f32
  OneDnnArguments arguments;
};

// The errors are those of GemmEngine::MultiplyPacked.
Result<PackedPlan> PlanPacked(const dnnl::engine& engine, const PackedProblem& problem);

// The plans that were made last. The modules of a model are of a few kinds, and oneDNN takes as
// long for a plan as for some products. Not safe for several threads.
class KnownPlans {
 public:
  // The errors are those of PlanPacked, and are not kept.
  Result<PackedPlan> PlanFor(const dnnl::engine& engine, const PackedProblem& problem);

 private:
  // All that a plan depends on.
  struct Key {
    PackRequest request;
    uint64_t n = 0;
    uint64_t k = 0;
    uint64_t group_size = 0;
    uint64_t rows = 0;
    DType scale_dtype = DType::kF32;
    std::optional<DType> bias_dtype;
    bool has_zero_points = false;
    bool repack = false;

    explicit Key(const PackedProblem& problem);
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Known {
    Key key;
    PackedPlan plan;
  };

  std::deque<Known> known_;  // the oldest first
};

// Puts the packed weights, their scales and their zero points among the arguments.
Status SetWeights(const dnnl::engine& engine, dnnl::stream& stream, const PackedPlan& plan,
                  const PackedProblem& problem, OneDnnArguments& arguments);
// Here and below: requires operands that MakeKernelModel takes, whose sizes are not looked at
// again.
Result<PackedExecution> PrepareExecution(const dnnl::engine& engine, dnnl::stream& stream,
                                         const PackedPlan& plan, const PackedProblem& problem,
                                         std::span<float> y);
Status RunPacked(const dnnl::engine& engine, dnnl::stream& stream, const PackedPlan& plan,
                 const PackedProblem& problem, std::span<float> y);

}  // namespace prepack
