#pragma once

// Quantized rows as blocks of ggml, the inverse of blocks.h. Codes are those of the canonical
// layout (model/quantized_linear.h); no weight is quantized again. Mirrors ggml of llama.cpp
// b11434: ggml-common.h, ggml-quants.c.
//
//     Q4_0   f16 d, 16 bytes: byte j holds code j in the low half, code j + 16 in the high one
//     Q4_1   f16 d, f16 m, the same
//     Q5_0   f16 d, 4 bytes of fifth bits, the same          Q5_1  f16 d, f16 m, …
//     Q8_0   f16 d, 32 signed bytes
//     MXFP4  one byte 2^(e − 127), the 16 bytes of Q4_0 with E2M1 codes
//     NVFP4  4 bytes of unsigned E4M3, one for each 16 weights; then for each 16 of them 8 bytes,
//            byte j of which holds code j and code j + 8
//     Q2_K to Q6_K: pack_k_quants.h

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "prepack/gguf/ggml_types.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/model/scheme.h"

namespace prepack::gguf {

// Does the type hold every weight of such a module: its codes, however they are scaled, and its
// scales but for their rounding to the type of ggml? A sentence if it does not. Whether Q2_K to
// Q6_K hold the scales is for FirstNotHeld to say (pack_k_quants.h).
std::string WhyNotHeld(GgmlType type, const Scheme& scheme, uint64_t k);

// What was not exact in the rows that were packed.
struct Rounded {
  uint64_t scales = 0;     // of groups, that f16 does not hold
  uint64_t minima = 0;     // the same of minima, −zero point · scale
  uint64_t weights = 0;    // of those that were stored as floats
  uint64_t quantized = 0;  // weights that were quantized, see quantize.h
  double signal = 0;       // the sum of their squares
  double noise = 0;        // the same of their errors

  void Add(const Rounded& other) {
    scales += other.scales;
    minima += other.minima;
    weights += other.weights;
    quantized += other.quantized;
    signal += other.signal;
    noise += other.noise;
  }
  bool any() const { return scales != 0 || minima != 0 || weights != 0 || quantized != 0; }
  // Of those that were quantized, in dB; infinite where nothing changed.
  double sqnr() const;
};

// One output channel of a module: K codes, packed as in a panel, and G scales and zero points.
struct CodeRow {
  std::span<const std::byte> codes;
  std::span<const float> scales;
  std::span<const uint8_t> zero_points;
};

// Packs rows of one module into blocks of a type that holds it.
class RowPacker {
 public:
  // `global` is that of NVFP4: its scales are packed as the numbers below it.
  RowPacker(GgmlType type, const Scheme& scheme, uint64_t k, const GlobalScale& global);

  uint64_t row_bytes() const { return row_bytes_; }
  // Fills `out` (row_bytes() bytes). kUnsupported for a scale that the type has no number for at
  // all: infinite in f16, or no power of two for MXFP4.
  Status Pack(const CodeRow& row, std::byte* out, Rounded& rounded) const;

 private:
  Status PackScales(const CodeRow& row, std::byte* out, Rounded& rounded) const;
  std::optional<uint8_t> UnsignedE4M3(float scale) const;
  bool FourE4M3(const float* scales, std::byte* out) const;

  GgmlType type_;
  const GgmlTypeInfo& info_;
  Scheme scheme_;
  uint64_t k_;
  GlobalScale global_;
  uint64_t row_bytes_;
  bool has_minimum_;
  // Of NVFP4: about what a scale has to be multiplied with, and the scales that numbers mean.
  float below_global_;
  std::array<float, 0x7F> numbers_ = {};
};

}  // namespace prepack::gguf
