#ifndef PREPACK_DIFF_MODULE_DIFF_H_
#define PREPACK_DIFF_MODULE_DIFF_H_

// The weight matrix of a module on one side of a comparison: quantized, or a float tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/report/page.h"

namespace prepack {

// A weight in its stored terms.
struct StoredWeight {
  int code = 0;  // the number that an integer code is; the bits of an FP8 one
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

// Two weight matrices, element by element.
//
//   identical   every weight has the same bits in f32, and comes from the same step (code − zero
//               point) and the same scale. How codes are held (s8, or u8 with zero point 128), how
//               large groups are and in which order inputs are stored does not matter.
//   equal       |a − b| ≤ r · max(|a|, |b|) for every weight, where r is what one rounding to the
//               coarser of the two stored scale dtypes can do (2^-8 for bf16, 2^-11 for f16, 2^-24
//               for f32) plus 2^-23 for the two products in f32
//   different   otherwise
//
// Of headers alone, modules of one shape are "not compared".

enum class DiffVerdict : uint8_t {
  kIdentical,
  kEqual,
  kDifferent,
  kShapeDiffers,
  kOnlyInA,
  kOnlyInB,
  kNotCompared,
};

std::string_view DiffVerdictName(DiffVerdict verdict);  // "identical", …, "only in B"
// kIdentical or kEqual; or nobody asked for more than headers, which agree.
bool IsSame(DiffVerdict verdict);
Tone ToneOf(DiffVerdict verdict);

inline constexpr size_t kWorstElements = 5;

struct ElementSide {
  float value = 0;
  std::optional<StoredWeight> stored;  // none: a float tensor
};

struct WorstElement {
  uint64_t n = 0;
  uint64_t k = 0;
  ElementSide a;
  ElementSide b;
};

// Sums over a stripe of rows, mergeable in the order of the stripes.
struct WeightDifferences {
  uint64_t elements = 0;
  uint64_t unequal = 0;  // weights whose values differ at all
  uint64_t beyond = 0;   // by more than the rounding allows
  uint64_t scales = 0;   // weights whose scales differ although their values may not
  double max_absolute = 0;
  double max_relative = 0;          // of max(|a|, |b|)
  double signal = 0;                // Σ a²
  double noise = 0;                 // Σ (a − b)²
  std::vector<WorstElement> worst;  // by |a − b|, then by position; values only

  void Merge(const WeightDifferences& other);
  DiffVerdict Verdict() const;
  // B against A: 10 · log10(signal / noise). Infinite without noise; nullopt without signal.
  std::optional<double> SqnrDb() const;
};

struct DiffBuffers {
  DequantizeBuffers reading;
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

#endif  // PREPACK_DIFF_MODULE_DIFF_H_
