#ifndef PREPACK_VERIFY_FEW_TRUTH_H_
#define PREPACK_VERIFY_FEW_TRUTH_H_

// What a kernel should compute of a few rows of activations, for all output channels of a module:
// GemmTruth (truth.h) costs too much for all of them, and is asked about some.
//
// Weights and activations are those that GemmTruth multiplies for the kernel figure, from the same
// decoder. Products are summed in f32 in short runs and then in f64: what that leaves out is 140 dB
// below the result. Rows that are nearly all zero are summed in f64 throughout.

#include <cstdint>
#include <span>
#include <vector>

#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/verify/truth.h"

namespace prepack {

// Vectors of what begins at a page lie in one cache line each.
using PageFloats = std::vector<float, PageAllocator<float>>;

// Memory of one thread.
struct FewPanel {
  std::vector<double> kernel;  // [rows, channels]: the dense rows, then the hot ones
  bool zeros = true;           // every weight of the panel is zero in the source
  DecodedRows decoded;
  DecodedRows scattered;
  std::vector<uint64_t> run_ends;  // of consecutive input channels with the same group
  std::vector<uint64_t> runs_of;   // the groups that these are of
  std::vector<float> scales;
  PageFloats weights;
  std::vector<double> sums;
};

class FewTruth {
 public:
  // `rows`: which dense rows of the inputs; all hot rows follow. The truth must outlive this.
  FewTruth(const GemmTruth& truth, std::span<const uint64_t> rows);

  // Output channels [n0, n0 + channels); n0 is a multiple of 8. Safe from any thread. The errors
  // are those of the second decoder.
  Status Compute(WeightRounding rounding, uint64_t n0, uint64_t channels, FewPanel& panel) const;

 private:
  // A channel of a hot row that is not zero.
  struct Entry {
    uint64_t k = 0;
    uint64_t row = 0;
    double value = 0;
  };

  void MultiplyPiece(WeightRounding rounding, uint64_t first, uint64_t channels,
                     FewPanel& panel) const;
  void FillWeights(WeightRounding rounding, const FewPanel& panel, uint64_t channel, uint64_t begin,
                   uint64_t end, std::span<float> weights) const;

  const GemmTruth& truth_;
  uint64_t k_ = 0;
  PageFloats dense_;  // [rows, stride_]
  uint64_t stride_ = 0;
  uint64_t dense_rows_ = 0;
  uint64_t hot_rows_ = 0;
  std::vector<Entry> hot_;  // by k
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_FEW_TRUTH_H_
