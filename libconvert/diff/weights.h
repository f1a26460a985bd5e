#ifndef PREPACK_DIFF_WEIGHTS_H_
#define PREPACK_DIFF_WEIGHTS_H_

// The weight matrix of a module on one side of a comparison: quantized, or a float tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canonical/dequantize.h"
#include "container/checkpoint.h"

namespace prepack {

// A weight in its stored terms.
struct StoredWeight {
  uint8_t code = 0;  // bits, as the canonical layout holds them
  uint8_t zero_point = 0;
  float scale = 0;
  int step = 0;  // code − zero point; 0 for FP8
};

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

}  // namespace prepack

#endif  // PREPACK_DIFF_WEIGHTS_H_
