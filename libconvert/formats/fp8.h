#ifndef PREPACK_FORMATS_FP8_H_
#define PREPACK_FORMATS_FP8_H_

// Checkpoints of `quant_method: fp8`, as DeepSeek-V3, Qwen3-FP8 and AutoFP8 publish them (mirrors
// vLLM 0.32.0, model_executor/layers/quantization/fp8.py: Fp8Config, Fp8LinearMethod).
//
//     MODULE.weight            F8_E4M3 [N, K]
//     MODULE.weight_scale_inv  F32 or BF16 [⌈N/128⌉, ⌈K/128⌉]  with weight_block_size [128, 128]
//     MODULE.weight_scale      one element                     without it: one scale per module
//     MODULE.input_scale       one element                     activation_scheme "static" only
//
// Despite its name weight_scale_inv multiplies: W = e4m3(weight) · scale. The numbers are those of
// compressed-tensors' float-quantized, under other names. Block edges may be partial.

#include "formats/format.h"

namespace prepack {

Result<QuantizedModel> ReadFp8(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FP8_H_
