#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <memory>

#include "prepack/base/status.h"
#include "prepack/gemm/engine.h"

namespace prepack {

// Part of the module with oneDNN: see gemm/onednn/engine.h, and GemmEngine::Repeat. The engine and
// the stream must live longer. Throws what oneDNN throws.
Result<std::unique_ptr<RepeatedProduct>> RepeatPacked(const dnnl::engine& engine,
                                                      dnnl::stream& stream,
                                                      const PackedProblem& problem,
                                                      uint64_t copies);

}  // namespace prepack
