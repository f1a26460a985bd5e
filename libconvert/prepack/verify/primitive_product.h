#ifndef PREPACK_VERIFY_PRIMITIVE_PRODUCT_H_
#define PREPACK_VERIFY_PRIMITIVE_PRODUCT_H_

// The product that oneDNN's primitive makes of a packed module, on the packed memory as it lies in
// the file. It can only multiply all output channels at once.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/gemm/engine.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/packed_operands.h"

namespace prepack {

struct PrimitiveOptions {
  GemmEngine& engine;
  bool repack = false;         // see PackedProblem
  bool must_multiply = false;  // there is no model that could multiply in its place
};

class PrimitiveProduct {
 public:
  // All arguments but the options must outlive it.
  PrimitiveProduct(const PackedModule& packed, const GemmInputs& inputs, const ProductCut& cut,
                   const PrimitiveOptions& options);

  // Asks the primitive about every number of rows, then has it multiply all of them at once: it
  // unpacks the weights in every call, which takes longer than the products. Batch by batch where
  // that would be too much, and then only the first ones where it is slow. kUnsupported and
  // kUnavailable as for GemmEngine::MultiplyPacked.
  Status Multiply(const PackedOperands& operands);

  // How many batches of the inputs it has multiplied, and the outputs of one, [rows, N].
  size_t batches() const { return of_batches_.size(); }
  std::span<const float> Outputs(size_t batch) const { return of_batches_[batch]; }
  const GemmInfo& info() const { return info_; }

 private:
  Result<GemmInfo> Describe(const PackedProblem& whole, uint64_t rows) const;
  Status MultiplyAllRows(const PackedProblem& whole);
  Status MultiplyByBatch(const PackedProblem& whole);
  uint64_t RowsAtOnce(const InputBatch& batch) const;
  // The outputs become the last of outputs_.
  Status MultiplyRows(const PackedProblem& whole, const InputBatch& batch);

  const PackedModule& packed_;
  const GemmInputs& inputs_;
  const ProductCut& cut_;
  PrimitiveOptions options_;
  std::vector<std::vector<float>> outputs_;
  std::vector<std::span<const float>> of_batches_;  // in outputs_
  GemmInfo info_;
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_PRIMITIVE_PRODUCT_H_
