#pragma once

// How the consumers quantize activations to eight bits before they multiply, to the bit. All work
// on rows of finite numbers: x is [M, K] with K = k.

#include <cstdint>
#include <span>
#include <vector>

namespace prepack {

// x is about (value - zero_point) * scale, with the scale and the zero point of the row.
struct QuantizedRows {
  std::vector<int16_t> values;       // [M, K], in the range of s8 or u8
  std::vector<float> scales;         // [M]
  std::vector<int64_t> zero_points;  // [M]; 64 bits, so that they can be shifted with the values
};

enum class Halfway : uint8_t { kToEven, kAwayFromZero };

// vLLM's sgl kernels (csrc/cpu/sgl-kernels/vec.h, quantize_row_int8): u8 around the constant 128.
// BF16 rows round to even, F16 rows away from zero.
QuantizedRows QuantizeSgl(std::span<const float> x, uint64_t k, Halfway halfway);

// Where vLLM's quantizers run: on Arm they cut fractions off instead of rounding to the nearest.
enum class QuantizerCpu : uint8_t { kX86, kArm };

// vLLM's dynamic_scaled_int8_quant (csrc/cpu/dnnl_kernels.cpp): s8, one scale per row, no lower
// bound on it. A row of zeros has scale 0 and values 0, and with a zero point that of an
// integer conversion that fails, -2^31 (on Arm 0).
QuantizedRows QuantizeDynamic(std::span<const float> x, uint64_t k,
                              QuantizerCpu cpu = QuantizerCpu::kX86);
QuantizedRows QuantizeDynamicAsymmetric(std::span<const float> x, uint64_t k,
                                        QuantizerCpu cpu = QuantizerCpu::kX86);

// vLLM's static_scaled_int8_quant: s8, scale (finite, > 0) and zero point given.
QuantizedRows QuantizeStatic(std::span<const float> x, uint64_t k, float scale, int32_t zero_point,
                             QuantizerCpu cpu = QuantizerCpu::kX86);

// zentorch's dynamic quantizer: s8, by a true division; a scale is at least 1e-10.
QuantizedRows QuantizeZentorch(std::span<const float> x, uint64_t k);

// kt-kernel's BufferA of int8: s8, by two inverses; a row of zeros has scale 0 and values 0.
QuantizedRows QuantizeKt(std::span<const float> x, uint64_t k);

// KleidiAI's lhs_quant_pack_qai8dxp_f32 and …_bf16_neon: s8 with a zero point, ties away from zero.
// A row of zeros has scale 1 and values 127.
QuantizedRows QuantizeKleidiAi(std::span<const float> x, uint64_t k);

// `rows` with the same meaning and every value larger by `shift`.
QuantizedRows Shifted(QuantizedRows rows, int shift);

// vLLM's FP8 rows (csrc/cpu/sgl-kernels/gemm_fp8_w8a8.cpp): e4m3 codes.
struct Fp8Rows {
  std::vector<uint8_t> codes;  // [M, K]
  std::vector<float> scales;   // [M]
};
Fp8Rows QuantizeFp8(std::span<const float> x, uint64_t k);

}  // namespace prepack
