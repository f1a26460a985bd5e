#ifndef PREPACK_VERIFY_GEMM_TRUTH_H_
#define PREPACK_VERIFY_GEMM_TRUTH_H_

// What a GEMM on one packed module is fed with, and what it should give: both in f64, from the
// source, decoded by the second path.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gemm/reference.h"
#include "verify/kernel_weights.h"
#include "verify/packed_folder.h"
#include "verify/second_decoder.h"

namespace prepack {

// Rows of activations per module: enough for the figures to be stable to about 0.1 dB.
inline constexpr uint64_t kGemmRows = 16;

// What a GEMM on one module gave.
struct GemmSums {
  SqnrAccumulator kernel;
  SqnrAccumulator end_to_end;
  std::string implementation;
  std::string activations;
};

class GemmTruth {
 public:
  // Draws the activations of the module: seeded by its name, Gaussian; where the checkpoint
  // quantizes them statically, as wide as the range that it chose. `dtype`: what the kernel is
  // given. Both arguments must outlive the truth.
  static Result<GemmTruth> Make(const PackedModule& packed, const SecondDecoder& source,
                                DType dtype);

  Isa isa() const { return isa_; }
  // Rounded, and in the order of inputs of the packed module, [M, K].
  std::span<const float> input() const { return input_; }
  // The same numbers as the kernel multiplies them, in the same order; without it, those of
  // input().
  void SetKernelActivations(std::span<const double> packed_order);
  // A kernel that adds the bias; without it, y has none.
  Status AddBias();

  // Adds what y [M, rows], of output channels from n0 on, is worth.
  Status Compare(WeightRounding rounding, uint64_t n0, std::span<const float> y, GemmSums& figures);

 private:
  GemmTruth(const PackedModule& packed, const SecondDecoder& source)
      : packed_(&packed), source_(&source) {}
  Status ReadOrder();
  Status Draw(DType dtype);

  const PackedModule* packed_;
  const SecondDecoder* source_;
  Isa isa_ = Isa::kScalar;
  std::vector<uint64_t> order_;             // [K]: packed input j is input order_[j] of the model
  std::vector<float> input_;                // [M, K], packed order
  std::vector<double> exact_activations_;   // [M, K], the model's order, here and below
  std::vector<double> kernel_activations_;  // [M, K]
  std::vector<double> exact_bias_;          // [N], or none
  std::vector<double> kernel_bias_;         // the same, rounded as the part is
  // Scratch memory of Compare.
  DecodedRows decoded_;
  std::vector<double> weights_;
  std::vector<double> y_;
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_GEMM_TRUTH_H_
