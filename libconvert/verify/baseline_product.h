#ifndef PREPACK_VERIFY_BASELINE_PRODUCT_H_
#define PREPACK_VERIFY_BASELINE_PRODUCT_H_

// A packed module against the same layer of the unquantized model: its weights, and what it
// computes. Recorded activations are taken where there are any, else Gaussian ones.

#include <cstdint>
#include <span>
#include <vector>

#include "base/isa.h"
#include "base/result.h"
#include "canonical/stacked_rows.h"
#include "check/baseline.h"
#include "container/checkpoint.h"
#include "verify/figure_sums.h"
#include "verify/gemm_inputs.h"
#include "verify/packed_folder.h"
#include "verify/report.h"

namespace prepack {

struct BaselineProductSums {
  CompensatedSum weight_signal;
  CompensatedSum weight_noise;
  FigureSums output;

  void Merge(const BaselineProductSums& other);
  QualityFigures Figures() const;  // without below_peers_db
};

// Memory of one thread.
struct BaselineProductBuffers {
  std::vector<float> stored;    // some rows, as stored
  std::vector<double> weights;  // [channels, K]
  std::vector<double> y;        // [rows, channels]
};

class BaselineProduct {
 public:
  // kUnsupported when the unquantized model has no such weight, or another shape. The arguments
  // must outlive the result.
  static Result<BaselineProduct> Find(const Checkpoint& baseline, const PackedModule& packed,
                                      const GemmInputs& inputs, Isa isa);

  // The batch of activations that is compared.
  size_t batch() const { return batch_; }
  // Adds a panel: dequantized weights [channels, K], and y of the batch. Safe from any thread.
  Status Add(const OutputBlock& block, std::span<const double> quantized, std::span<const float> y,
             BaselineProductBuffers& buffers, BaselineProductSums& sums) const;

 private:
  BaselineProduct() = default;
  Status FindMember(const FusedMember& member, uint64_t k);
  bool IsStored(uint64_t input) const;
  Status ReadSlab(const BaselineWeight& weight, const StackedRows& piece,
                  BaselineProductBuffers& buffers) const;
  Status ReadWeights(const OutputBlock& block, BaselineProductBuffers& buffers) const;

  const Checkpoint* baseline_ = nullptr;
  std::vector<BaselineWeight> weights_;  // of the members of the packed module
  std::vector<uint64_t> sizes_;          // their output channels
  const GemmInputs* inputs_ = nullptr;
  Isa isa_ = Isa::kScalar;
  size_t batch_ = 0;
  std::vector<float> bias_;  // [N], zero where a member has none
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_BASELINE_PRODUCT_H_
