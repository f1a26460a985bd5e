#pragma once

// The blocks of those types of ggml that hold a grid exactly: codes, scales and minima. Types whose
// codes are entries of tables (IQ…) are not among them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/gguf/ggml_types.h"

namespace prepack::gguf {

// Can it be decoded here? Floats are, and Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, MXFP4 and
// NVFP4.
bool IsDecoded(GgmlType type);
// Of these, one of those that have codes.
bool HasCodes(GgmlType type);
// Of those, one that adds minima.
bool HasMinima(GgmlType type);
// Of these, one whose minimum is an f16 of its own: Q4_1 and Q5_1.
bool HasF16Minimum(GgmlType type);

// Weight i is CodeValue(type, codes[i]) · scales[i / group] + minima[i / group], in f32, as ggml
// computes it.
struct Block {
  // Integers, with their sign where the type has no minimum; of MXFP4 and NVFP4 the four bits of
  // E2M1.
  std::array<int16_t, 256> codes = {};
  std::array<float, 16> scales = {};
  std::array<float, 16> minima = {};
  uint32_t group = 0;  // weights that share a scale and a minimum
};

// What a code multiplies its scale with: itself; of MXFP4 and NVFP4 twice the number that E2M1
// means, as ggml stores it (scales are halves of those of the formats). ggml knows no negative
// zero.
float CodeValue(GgmlType type, int16_t code);

// `bytes` are one block of a type that has codes.
Block DecodeBlock(GgmlType type, const std::byte* bytes);

// The weights of whole blocks of a type that is decoded, as floats.
void Dequantize(GgmlType type, std::span<const std::byte> bytes, std::span<float> weights);

}  // namespace prepack::gguf
