#pragma once

#include <dnnl.hpp>

namespace prepack {

// Part of what calls oneDNN: see gemm/onednn/engine.h.

// What oneDNN's primitives run on: threads of its own or, where it is built to be given some
// (DNNL_RUNTIME_THREADPOOL), one of ours for each CPU that the process could run on at the first
// call. Those wait for work until the process ends. Throws what oneDNN throws.
dnnl::stream MakeStream(const dnnl::engine& engine);

}  // namespace prepack
