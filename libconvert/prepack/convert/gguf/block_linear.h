#pragma once

// A module whose weights are blocks of ggml, in the canonical layout. Which bytes a block has is
// drawn in pack_blocks.h.
//
// Q4_1 and Q5_1 store a minimum where the canonical layout has a zero point z: minimum = −z ·
// scale. A minimum that is such a product, or its rounding to f16, means that z: no two of them
// round to one number.

#include <cstdint>
#include <memory>
#include <string>

#include "prepack/base/function_ref.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/restored.h"
#include "prepack/formats/stored_linear.h"

namespace prepack::gguf {

// Are blocks of this type codes times scales, but for minima, so that they make a BlockLinear?
bool IsCanonical(GgmlType type);

// Rows [first, first + n) of what was restored, as a module of that name. `whole` has one type, and
// the checkpoint has its tensors of blocks, and the factors of NVFP4, under the names that they
// have in the file. All must outlive the result.
struct BlockModule {
  std::string name;
  const Restored* whole = nullptr;
  uint64_t first = 0;
  uint64_t n = 0;
  bool is_expert = false;  // of a stack, whose biases are stacked as well: EXPERTS.X_bias
};

// kMalformed when groups are no whole blocks, or when a factor of NVFP4 is no positive number, or
// differs within the module.
Result<std::unique_ptr<QuantizedLinear>> MakeBlockLinear(const Checkpoint& checkpoint,
                                                         BlockModule module);

// The same of any type that is decoded, as floats.
std::unique_ptr<QuantizedLinear> MakeFloatLinear(const Checkpoint& checkpoint, BlockModule module);

// Do the codes of the type, with zero points in place of minima, say every weight of the tensor?
// Types with minima are read through for that.
Result<bool> HasZeroPoints(const Model& model, const Tensor& tensor);

// The name of the factors of a tensor of NVFP4.
std::string FactorsOf(const std::string& tensor);

}  // namespace prepack::gguf
