#pragma once

// A linear layer that no quantizer touched, seen as a module: MODULE.weight, BF16 [N, K].

#include <memory>
#include <string_view>

#include "prepack/container/checkpoint.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// MODULE.weight if it is a matrix of BF16, else null.
const StoredTensor* FindPlainWeight(const Checkpoint& checkpoint, std::string_view module);

// Codes are the weights, bit for bit; scales read as 1, zero points as 0. The scheme is that of
// dequantized weights. Refers to the checkpoint and to its tensor, which FindPlainWeight found.
std::unique_ptr<QuantizedLinear> MakePlainLinear(const Checkpoint& checkpoint,
                                                 const StoredTensor& weight);

}  // namespace prepack
