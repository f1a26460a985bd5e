#ifndef ONEDNN_CONSUMER_MATMUL_RUN_H_
#define ONEDNN_CONSUMER_MATMUL_RUN_H_

#include <dnnl.hpp>
#include <vector>

#include "kernel_input.h"
#include "matmul_description.h"
#include "operands.h"
#include "packed_folder.h"

// y [rows, N] of a module, bias included. `weights` are as many bytes as the primitive's
// weights_desc() says, wherever they lie: the primitive reads them there.
std::vector<float> RunMatmul(const dnnl::engine& engine, const MatmulDescription& matmul,
                             const Module& module, const Operands& operands,
                             std::span<const std::byte> weights, KernelInput& input);

#endif  // ONEDNN_CONSUMER_MATMUL_RUN_H_
