#pragma once

// Quantizes, for modules that no type of ggml holds and that the user wants small. Everything else
// in this folder moves codes.

#include <cstddef>
#include <span>

#include "prepack/base/status.h"
#include "prepack/convert/gguf/pack_blocks.h"

namespace prepack::gguf {

// A row of weights, as many as whole blocks have, as Q8_0: the bytes that quantize_row_q8_0_ref of
// ggml (b11434) makes of it. Adds the weights and their squares, and those of the errors, to
// `rounded`. kUnsupported where f16 has no number for a scale.
Status QuantizeQ8_0(std::span<const float> weights, std::byte* out, Rounded& rounded);

}  // namespace prepack::gguf
