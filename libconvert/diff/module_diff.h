#ifndef PREPACK_DIFF_MODULE_DIFF_H_
#define PREPACK_DIFF_MODULE_DIFF_H_

// Two weight matrices, element by element.
//
//   identical   every weight has the same bits in f32, and comes from the same step (code − zero
//               point) and the same scale. How codes are held (s8, or u8 with zero point 128), how
//               large groups are and in which order inputs are stored does not matter.
//   equal       |a − b| ≤ r · max(|a|, |b|) for every weight, where r is what one rounding to the
//               coarser of the two stored scale dtypes can do (2^-8 for bf16, 2^-11 for f16, 2^-24
//               for f32) plus 2^-23 for the two products in f32
//   different   otherwise

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/tone.h"
#include "diff/weights.h"

namespace prepack {

enum class DiffVerdict : uint8_t {
  kIdentical,
  kEqual,
  kDifferent,
  kShapeDiffers,
  kOnlyInA,
  kOnlyInB,
};

std::string_view DiffVerdictName(DiffVerdict verdict);  // "identical", …, "only in B"
// kIdentical or kEqual.
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
  // Of B against A: 10 · log10(signal / noise). Infinite without noise; nullopt without signal.
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
