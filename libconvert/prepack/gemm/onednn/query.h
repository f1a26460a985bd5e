#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <string>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/gemm/onednn/fields.h"
#include "prepack/layouts/blocked_desc.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// Must run before the first dnnl::engine of the process. Intel's build of oneDNN reaches the CPU
// through an OpenCL driver, which it finds only if the environment variable OCL_ICD_FILENAMES names
// it; this names the driver that lies beside the loaded oneDNN. A value that the user has set is
// left alone. Sets the environment, so call it while no other thread reads that.
void PrepareOneDnnRuntime();

// Part of the module with oneDNN: see gemm/onednn/engine.h.

// All that the public queries say of a descriptor.
OneDnnFields FieldsOf(const dnnl::memory::desc& desc);

constexpr dnnl::memory::dim Dim(uint64_t value) {
  return static_cast<dnnl::memory::dim>(value);
}

// The int8 matmul that vLLM's handler describes for a module of onednn/w8a8 (vLLM 0.32.0,
// csrc/cpu/dnnl_helper.cpp, W8A8MatMulPrimitiveHandler), for `m` rows of activations.
// `zero_points`: the activations have one. Throws what oneDNN throws when there is no such
// primitive.
struct W8A8Form {
  uint64_t m = 0;
  dnnl::memory::desc weights;  // of format `any` to ask what it wants
  dnnl::memory::data_type result = dnnl::memory::data_type::f32;
  bool zero_points = false;
  std::optional<dnnl::memory::data_type> bias = {};  // [N] of this type; none: no bias
};
dnnl::matmul::primitive_desc DescribeW8A8(const dnnl::engine& engine, const PackRequest& request,
                                          const W8A8Form& form);

// Weights [K, N] in whatever form the primitive likes best.
dnnl::memory::desc AnyW8A8Weights(const PackRequest& request);

// The form that it likes best, asked as vLLM asks, and by which implementation; kUnsupported when a
// BlockedDesc cannot say it. Throws what oneDNN throws.
Result<BlockedDesc> WantedW8A8Weights(const dnnl::engine& engine, const PackRequest& request,
                                      std::string& implementation);

// Sums go to vLLM's own code as f32 when it applies the scales of the activations itself.
dnnl::memory::data_type W8A8ResultType(const PackRequest& request);

dnnl::memory::data_type TypeOf(DType dtype);  // F32, BF16 or F16

// Are the activations of the module quantized with a zero point that the primitive takes off?
bool HasStaticZeroPoint(const PackRequest& request);

}  // namespace prepack
