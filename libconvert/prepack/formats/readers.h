#ifndef PREPACK_FORMATS_READERS_H_
#define PREPACK_FORMATS_READERS_H_

// AWQ checkpoints of AutoAWQ, llm-awq (as safetensors), GPTQModel and AutoRound's plain AWQ export
// (mirrors AutoAWQ 0.2.9, awq/modules/linear/{gemm,gemv,gemv_fast}.py).
//
// Read: 4 bits, in the layouts gemm, gemv and gemv_fast; with zero points, or symmetric.
//
//     gemm, N = 8, K = 2, codes (k + n) mod 16: qweight is 75316420 86427531, file bytes
//         20 64 31 75  31 75 42 86         (channels 0|2 4|6 1|3 5|7 of one input, low|high nibble)
//
// The other drawings are in formats/awq/module.h and kernels/awq.h. The tensors decide
// which layout it is; a `version` that says otherwise is a finding. A module is quantized if and
// only if it has a qweight: `modules_to_not_convert`, which its readers understand in three ways,
// explains and decides nothing.
//
// AWQ also scales other tensors (norms, preceding projections): those must come from the same
// checkpoint, as they do here, never from the original model.

#include "prepack/formats/format.h"

namespace prepack {

namespace awq {
Status Read(const ReadContext& context, QuantizedModel& model);
}

// compressed-tensors checkpoints, as llm-compressor writes them (mirrors compressed-tensors 0.19,
// compressors/ and utils/match.py).
//
// Read: `pack-quantized`, 4 bits, symmetric and asymmetric, one scale per group or per channel.
//
//     MODULE.weight_packed      I32 [N, ⌈K/8⌉]  eight codes per word along K, lowest bits first;
//                                               code = signed value + 8
//     MODULE.weight_scale       BF16, F16 or F32 [N, G]
//     MODULE.weight_zero_point  I32 [⌈N/8⌉, G]  eight zero points per word, down the rows, + 8;
//                               before 0.9.4: I8 [N, G], signed
//     MODULE.weight_shape       I64 [2]         N, K
//
// N = 4, K = 16 with codes 0 … 15 in row 0 begins with the bytes 10 32 54 76 98 ba dc fe.
//
// `mxfp4-pack-quantized` and `nvfp4-pack-quantized` store two FP4 codes in a byte:
//
//     MODULE.weight_packed        U8 [N, K/2]   the even input channel in the low half
//     MODULE.weight_scale         U8 [N, K/32], exponents + 127; of nvfp4 F8_E4M3 [N, K/16]
//     MODULE.weight_global_scale  F32 [1], of nvfp4: divides weight_scale
//
// `mxfp8-quantized` stores weight F8_E4M3 [N, K] beside such exponents.
//
// Every other format and scheme is recognised and refused by name (kUnsupported). The tensors that
// exist decide what a module is, and the configuration says what they mean: `ignore` lists are
// often wrong about names. Where the two contradict each other so that the meaning is open, the
// checkpoint is kMalformed; where the tensors settle it, the contradiction is a Finding.

namespace ct {
Status Read(const ReadContext& context, QuantizedModel& model);
}

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
//
// Experts may be stacked, or have their scales stacked (fp8/module.h).
//
// DeepSeek V4 (`expert_dtype: fp4` in config.json; mirrors vLLM 0.33, models/deepseek_v41, and
// transformers 5.23, Fp8Dequantize) stores its routed experts in FP4, whatever weight_block_size
// is:
//
//     MODULE.weight  I8 [N, K/2]       two codes in a byte, the even input channel in the low half
//     MODULE.scale   F8_E8M0 [N, K/32]
//
// `quant_method: mxfp8` (MiniMax M3; vLLM 0.33 reads it as ModelOpt's MXFP8) stores
//
//     MODULE.weight            F8_E4M3 [N, K]
//     MODULE.weight_scale_inv  U8 or F8_E8M0 [N, K/32], exponents; also called weight_scale
//
// `quant_method: fbgemm_fp8` (mirrors transformers 5.23, integrations/fbgemm_fp8.py) stores the
// same weight with weight_scale F32 [N, 1], which multiplies. Activations are quantized per token.

namespace fp8 {
Status Read(const ReadContext& context, QuantizedModel& model);
}

// Checkpoints of `quant_method: mxfp4` (gpt-oss; mirrors transformers 5.23, integrations/mxfp4.py):
// only experts are quantized, all of a layer in one tensor.
//
//     EXPERTS.X_blocks  U8 [E, N, K/32, 16]  32 codes of FP4 in a block, the even input channel
//                                            in the low half of its byte
//     EXPERTS.X_scales  U8 [E, N, K/32]      u means 2^(u − 127), 255 is NaN
//     EXPERTS.X_bias    BF16 [E, N]          passes through
//
// X is gate_up_proj, whose rows are gate and up by turns, or down_proj. Expert e is the module
// EXPERTS.X.e, rows as they are stored. Codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6, and bit 3 is
// the sign; [0, 0.5, …, 6, −0, −0.5, …] begins with the bytes 10 32 54 76 98.

namespace fp4 {
Status Read(const ReadContext& context, QuantizedModel& model);
}

// Checkpoints of NVIDIA's ModelOpt in FP8 (mirrors nvidia-modelopt 0.47, torch/export, and vLLM
// 0.33, layers/quantization/modelopt.py).
//
//     MODULE.weight        F8_E4M3 [N, K]
//     MODULE.weight_scale  F32, multiplies
//       []                     quant_algo FP8, with MODULE.input_scale F32 []
//       [N]                    FP8_PER_CHANNEL_PER_TOKEN
//       [⌈N/128⌉, 1, ⌈K/128⌉, 1]  FP8_PB_WO; [] where the matrix is one block
//     MODULE.weight_scale_inv  F32 [⌈N/128⌉, ⌈K/128⌉], multiplies: FP8_BLOCK_SCALES
//
// NVFP4, W4A16_NVFP4 and MXFP4 are two codes in a byte (fp4/module.h, also for stacked experts),
// and MXFP8 has scales that are exponents, U8 [N, K/32].
//
// MIXED_PRECISION says for each module, or for what it lies in, which of these it is; what is not
// listed is not quantized. The names of algorithms are in any case: the writer itself spells some
// of them in lower case. k_scale and v_scale, of the key-value cache, lie beside the weights and
// pass through.

namespace modelopt {
Status Read(const ReadContext& context, QuantizedModel& model);
}

// Checkpoints of AMD's Quark in FP8, MXFP4, NVFP4 and integers (mirrors amd-quark 0.13,
// torch/export, and vLLM 0.33, layers/quantization/quark/).
//
//     MODULE.weight        F8_E4M3 [N, K]
//     MODULE.weight_scale  BF16, F16 or F32, multiplies: [] per_tensor, or [N] per_channel
//     MODULE.input_scale   [], where activations are static
//
// MXFP4 and NVFP4 are stored as fp4/module.h says, integers as quark/integers.h does. AMDFP4 has
// the same tensors as MXFP4 and means other numbers.
//
// The specification of a module is that of the first pattern of layer_quant_config which matches
// its name, else that of its class, else the global one. output_scale, of the key-value cache,
// passes through.

namespace quark {
Status Read(const ReadContext& context, QuantizedModel& model);
}

// The format of GPTQModel, AutoGPTQ, optimum, and of AutoRound's export to auto_gptq. The tensors
// of a module are drawn in formats/gptq/linear.h, its zero points in formats/gptq/zeros.h, the
// config is described in formats/gptq/config.h. Which modules are quantized is told by the tensors;
// where the config says otherwise, that is a finding.
//
// Not read: Marlin, BitBLAS, QQQ and EXL3 weights (tiled for GPUs), words of other than 32 bits,
// rotated weights, adapters, embeddings.

namespace gptq {
Status Read(const ReadContext& context, QuantizedModel& model);
}

// AutoRound checkpoints, whose method vLLM calls INC (mirrors auto-round 0.15,
// auto_round/export/export_to_autoround/export.py).
//
// A dialect of configuration over the tensors of GPTQ (formats/gptq/linear.h) or AWQ
// (formats/readers.h): `packing_format` says which of them, and how zero points are stored
// (formats/auto_round/config.h). Read are integer weights of 2, 3, 4 and 8 bits, with bits, groups
// and symmetry by layer. Scales may be negative: symmetric AutoRound uses the full range of codes,
// about half of all scales are.
//
//     N = 1, K = 8, codes 0 … 7, z = 8: qweight 76543210; qzeros' fields are 7 under
//     auto_round:auto_gptq, and 8 under auto_round
//
// Exports to plain GPTQ and AWQ (`provider: auto-round`) are read as those. The tensors decide what
// is quantized and in how many bits; where the config says otherwise, it is a finding.

namespace auto_round {
Status Read(const ReadContext& context, QuantizedModel& model);
}

}  // namespace prepack

#endif  // PREPACK_FORMATS_READERS_H_
