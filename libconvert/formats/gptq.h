#ifndef PREPACK_FORMATS_GPTQ_H_
#define PREPACK_FORMATS_GPTQ_H_

// The format of GPTQModel, AutoGPTQ, optimum, and of AutoRound's export to auto_gptq. The tensors
// of a module are drawn in gptq_linear.h, its zero points in gptq_zeros.h, the config is described
// in gptq_config.h. Which modules are quantized is told by the tensors; where the config says
// otherwise, that is a finding.
//
// Not read: Marlin, BitBLAS, QQQ and EXL3 weights (tiled for GPUs), words of other than 32 bits,
// rotated weights, adapters, embeddings.

#include "formats/format.h"

namespace prepack {

Result<QuantizedModel> ReadGptq(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_H_
