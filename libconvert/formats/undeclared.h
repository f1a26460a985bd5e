#ifndef PREPACK_FORMATS_UNDECLARED_H_
#define PREPACK_FORMATS_UNDECLARED_H_

// Checkpoints whose config.json has no declaration that is read, and which are quantized all the
// same:
//
//     tensors gptq_bits, gptq_groupsize   text-generation-inference (tgi_config.h)
//     hf_quant_config.json                NVIDIA's ModelOpt, before it wrote config.json, too
//     config.json: quantization           Apple's MLX; a copy stands under quantization_config
//     MODULE.qweight and the like         the declaration was lost, as by saving config.json anew

#include "base/result.h"
#include "container/checkpoint.h"

namespace prepack {

// Refuses any of them by name, and says of others that they are not quantized.
Status RefuseUndeclared(const Checkpoint& checkpoint);

// config.json is one of MLX.
bool IsMlx(const Checkpoint& checkpoint);
// kUnsupported for such a one; `where` is the place of the declaration.
Status RefuseMlx(std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_UNDECLARED_H_
