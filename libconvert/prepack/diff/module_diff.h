#pragma once

// The weight matrix of a module on one side of a comparison: quantized, or a float tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/diff/weight_differences.h"
#include "prepack/model/dequantized_linear.h"

namespace prepack {

// Refers to the checkpoint and the module, which must live longer.
class Weights {
 public:
  explicit Weights(const QuantizedLinear& linear) : linear_(&linear) {}
  // A tensor [N, K] of BF16, F16 or F32.
  Weights(const Checkpoint& checkpoint, const StoredTensor& tensor)
      : checkpoint_(&checkpoint), tensor_(&tensor) {}

  uint64_t n() const { return linear_ != nullptr ? linear_->n() : tensor_->shape[0]; }
  uint64_t k() const { return linear_ != nullptr ? linear_->k() : tensor_->shape[1]; }
  uint64_t bytes() const { return linear_ != nullptr ? linear_->source_bytes() : tensor_->bytes; }
  // nullptr for a float tensor.
  const QuantizedLinear* linear() const { return linear_; }
  // "w4a16 group 128 symmetric", "BF16".
  std::string Describe() const;
  // Half the distance of neighbouring numbers, relative to them, of the dtype that scales (or the
  // floats) are stored in: 2^-8 for bf16, 2^-11 for f16, 2^-24 for f32.
  double Rounding() const;

  // Rows [n0, n0 + rows) into `out` [rows, K], input channels in the order of the checkpoint.
  Status Read(uint64_t n0, uint64_t rows, DequantizeBuffers& buffers, std::span<float> out) const;
  // One weight; nullopt for a float tensor.
  Result<std::optional<StoredWeight>> At(uint64_t n, uint64_t k) const;

 private:
  const QuantizedLinear* linear_ = nullptr;
  const Checkpoint* checkpoint_ = nullptr;
  const StoredTensor* tensor_ = nullptr;
};

// True for tensors that Weights takes.
bool IsFloatMatrix(const StoredTensor& tensor);

struct DiffBuffers {
  DequantizeBuffers reading_a;
  DequantizeBuffers reading_b;
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> scales_a;
  std::vector<float> scales_b;
};

class ModuleComparison {
 public:
  // Matrices of the same shape.
  ModuleComparison(Weights a, Weights b);

  const Weights& a() const { return a_; }
  const Weights& b() const { return b_; }

  // What one thread allocates for the buffers and the readers of `rows` rows, in bytes; at most.
  uint64_t MemoryOf(uint64_t rows) const;
  // Adds rows [n0, n0 + rows). Errors are those of the readers.
  Status Compare(uint64_t n0, uint64_t rows, DiffBuffers& buffers,
                 WeightDifferences& differences) const;
  // Looks up codes, zero points and scales of the worst elements.
  Status Explain(std::vector<WorstElement>& worst) const;

 private:
  Status CompareScales(uint64_t n0, uint64_t rows, DiffBuffers& buffers,
                       WeightDifferences& differences) const;

  Weights a_;
  Weights b_;
  double tolerance_;
};

}  // namespace prepack
