#ifndef PREPACK_FORMATS_AWQ_H_
#define PREPACK_FORMATS_AWQ_H_

// AWQ checkpoints of AutoAWQ, llm-awq (as safetensors), GPTQModel and AutoRound's plain AWQ export
// (mirrors AutoAWQ 0.2.9, awq/modules/linear/{gemm,gemv,gemv_fast}.py).
//
// Read: 4 bits, in the layouts gemm, gemv and gemv_fast; with zero points, or symmetric.
//
//     gemm, N = 8, K = 2, codes (k + n) mod 16: qweight is 75316420 86427531, file bytes
//         20 64 31 75  31 75 42 86         (channels 0|2 4|6 1|3 5|7 of one input, low|high nibble)
//
// The other drawings are in awq_layout.h and kernels/awq_gemv_fast.h. The tensors decide which
// layout it is; a `version` that says otherwise is a finding. A module is quantized if and only if
// it has a qweight: `modules_to_not_convert`, which its readers understand in three ways, explains
// and decides nothing.
//
// AWQ also scales other tensors (norms, preceding projections): those must come from the same
// checkpoint, as they do here, never from the original model.

#include "formats/format.h"

namespace prepack {

Result<QuantizedModel> ReadAwq(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AWQ_H_
