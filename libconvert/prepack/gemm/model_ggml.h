#pragma once

// What llama.cpp computes with a matrix of a GGUF file: models of the products of ggml's CPU
// backend (ggml/src/ggml-cpu of build 11434), y[M, N] = x[M, K] · W[N, K]ᵀ with x in f32.
//
// ggml first brings x into a form that depends on the type of W, in blocks of integers of 8 bits
// for all types that have codes. It multiplies the integers of a block exactly, scales their sum,
// and adds up the blocks in f32. The models find codes and scales in the blocks by themselves, and
// share that neither with the code that packs blocks nor with gguf/blocks.
//
// x is quantized as ggml does it on x86-64 with AVX2, to the bit; other CPUs may choose the other
// integer where a number lies halfway. Products are those of ggml's portable code, to the bit. Its
// code for AVX2 and AVX-512 adds in other orders: outputs differ by some 140 dB.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/gguf/ggml_types.h"

namespace prepack {

// The form of x.
enum class GgmlOperand : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,  // blocks of 32 integers with a scale of f16
  kQ8_1,  // the same, and the sum of what the integers mean, rounded to f16
  kQ8_K,  // blocks of 256 integers with a scale of f32
};
std::string_view GgmlOperandName(GgmlOperand operand);  // "Q8_0"

// What ggml multiplies weights of the type with; none: there is no model for it.
std::optional<GgmlOperand> GgmlOperandOf(gguf::GgmlType type);

// Does a block of the type add a minimum to all of its weights?
bool GgmlHasMinimum(gguf::GgmlType type);

// x as ggml multiplies it.
class GgmlActivations {
 public:
  // x is [M, k] and finite; k is a multiple of the operand's block.
  GgmlActivations(GgmlOperand operand, std::span<const float> x, uint64_t k);

  uint64_t m() const { return m_; }
  uint64_t k() const { return k_; }
  GgmlOperand operand() const { return operand_; }

  std::span<const float> values(uint64_t row) const { return Row(values_, row); }
  std::span<const int16_t> codes(uint64_t row) const { return Row(codes_, row); }
  std::span<const float> scales(uint64_t row) const { return Row(scales_, row); }
  std::span<const float> sums(uint64_t row) const { return Row(sums_, row); }  // of Q8_1

  // Columns of a row in f64: the k numbers that the integers mean and, of Q8_1, for each block by
  // how much its sum differs from the sum of these.
  uint64_t columns() const { return k_ + sums_.size() / m_; }
  void CopyRow(uint64_t row, std::span<double> columns) const;

 private:
  template <typename T>
  std::span<const T> Row(const std::vector<T>& rows, uint64_t row) const {
    const uint64_t width = rows.size() / m_;
    return std::span(rows).subspan(row * width, width);
  }
  void Quantize32(std::span<const float> x);
  void Quantize256(std::span<const float> x);

  GgmlOperand operand_;
  uint64_t k_;
  uint64_t m_;
  uint64_t blocks_ = 0;        // in a row
  std::vector<float> values_;  // [M, K], of floats; those of blocks:
  std::vector<int16_t> codes_;
  std::vector<float> scales_;  // [M, blocks]
  std::vector<float> sums_;
};

// Rows of W, taken apart as ggml's products do it.
class GgmlWeights {
 public:
  // For a type that has an operand.
  explicit GgmlWeights(gguf::GgmlType type);

  // k input channels of some output channels; `bytes` are those of the first, and of each of the
  // others they lie `stride` bytes further. k is a multiple of the block.
  void Take(const std::byte* bytes, uint64_t stride, uint64_t rows, uint64_t k);

  uint64_t rows() const { return rows_; }
  // A row as numbers: in f32 (where the product of a scale and a code has 24 bits, nothing is
  // rounded), or exactly.
  void CopyRow(uint64_t row, std::span<float> weights) const;
  void CopyRow(uint64_t row, std::span<double> weights) const;
  // What each block adds to all of its weights, for the columns behind the k-th of x; k / 32
  // numbers for types whose operand is Q8_1.
  void CopyMinima(uint64_t row, std::span<double> minima) const;

  // y is [M, rows].
  void Multiply(const GgmlActivations& x, std::span<float> y) const;

 private:
  template <typename Number>
  void Widen(uint64_t row, std::span<Number> weights) const;
  void TakeBlock(const uint8_t* bytes, uint64_t block);
  void TakeSmallBlock(const uint8_t* bytes, uint64_t block);
  void TakeScalesOfK(const uint8_t* bytes, uint64_t block);
  void TakeFloats(const uint8_t* bytes, uint64_t first, uint64_t count);
  float Product(uint64_t row, const GgmlActivations& x, uint64_t m) const;
  float SumOfBlocks(uint64_t row, const GgmlActivations& x, uint64_t m) const;
  float SumOfLanes(uint64_t row, const GgmlActivations& x, uint64_t m) const;
  float SumOfQ2K(uint64_t row, const GgmlActivations& x, uint64_t m) const;
  int32_t ShiftOf(uint64_t row, uint64_t block, const int16_t* x_codes) const;

  gguf::GgmlType type_;
  uint64_t rows_ = 0;
  uint64_t k_ = 0;
  uint64_t group_;             // weights that share one of `scales`
  std::vector<float> values_;  // [rows, K], of floats; those of blocks:
  std::vector<int16_t> codes_;
  std::vector<float> scales_;  // [rows, K / group]
  std::vector<float> minima_;  // the same; none: nothing is added
  // Of types with blocks of 256, integers for each 16 weights that the scale and the minimum are
  // multiplied with.
  std::vector<int16_t> inner_scales_;
  std::vector<int16_t> inner_minima_;
};

}  // namespace prepack
