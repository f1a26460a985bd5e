#ifndef PREPACK_FORMATS_FP8_H_
#define PREPACK_FORMATS_FP8_H_

// Checkpoints of `quant_method: fp8` (mirrors vLLM 0.32.0,
// model_executor/layers/quantization/fp8.py; transformers 5.23, integrations/finegrained_fp8.py;
// GPTQModel 7.7, nn_modules/qlinear/fp8.py).
//
//     MODULE.weight            F8_E4M3 [N, K]
//     MODULE.weight_scale_inv  F32 or BF16; also called weight_scale, and scale (DeepSeek V4)
//       [⌈N/128⌉, ⌈K/128⌉]       with weight_block_size [128, 128]; edges may be partial
//       [] or [1]                one scale per module
//       [N] or [N, 1]            one per output channel
//     MODULE.input_scale       one element, activation_scheme "static" only; transformers calls it
//                              activation_scale (Ministral 3, Devstral 2)
//
// The trap is the name weight_scale_inv. As DeepSeek, Qwen, Mistral and transformers write it, it
// multiplies: W = e4m3(weight) · scale. As GPTQModel writes it, it divides: W = e4m3(weight) /
// scale, and nothing tells the two apart but `weight_scale_semantics: "inverse"` in the config.
// There, the scale of the canonical layout is the reciprocal, rounded once to f32, as GPTQModel's
// own kernel takes it. `dynamic` then holds rules for some modules, as in GPTQModel's other
// formats.
//
// Scales may be bytes u that mean 2^(u − 127), 255 is NaN: of dtype F8_E8M0, or U8 where scale_fmt
// is "ue8m0".

#include "formats/format.h"

namespace prepack {

Result<QuantizedModel> ReadFp8(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FP8_H_
