#ifndef PREPACK_GEMM_ONEDNN_PACKED_H_
#define PREPACK_GEMM_ONEDNN_PACKED_H_

// Part of the module with oneDNN: see gemm/onednn/engine.h. The matmul primitives of the layouts
// that oneDNN reads, on packed weights where they lie.

#include <dnnl.hpp>
#include <span>
#include <vector>

#include "prepack/gemm/engine.h"

namespace prepack {

// A primitive for a packed module. All functions throw what oneDNN throws.
struct PackedPlan {
  dnnl::matmul::primitive_desc primitive;
  GemmInfo info;
  bool repacks = false;  // the primitive wants another form than the packed one
};

// The errors are those of GemmEngine::MultiplyPacked.
Result<PackedPlan> PlanPacked(const dnnl::engine& engine, const PackedProblem& problem);
// Requires operands that MakeKernelModel takes: their sizes are not looked at again.
Status RunPacked(const dnnl::engine& engine, dnnl::stream& stream, const PackedPlan& plan,
                 const PackedProblem& problem, std::span<float> y);

}  // namespace prepack

#endif  // PREPACK_GEMM_ONEDNN_PACKED_H_
