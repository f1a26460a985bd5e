#pragma once

// The product that oneDNN's primitive makes of a packed module, on the packed memory as it lies in
// the file. There it can only multiply all output channels at once, which takes longer than all
// other checks of a large module together. So the primitive multiplies copies of the sampled output
// channels, and all channels of one module of each kind (ProductOptions::whole): those of a kind
// have the same memory descriptor, and the model of the kernel reads all of their weights.

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
  bool sampled = false;        // only some panels of output channels are wanted
  bool whole = true;           // but with one-hot rows all channels
};

// Memory of one thread: some output channels, and their products.
struct PrimitivePanel {
  std::vector<std::byte> weight;
  std::vector<std::byte> scale;
  std::vector<std::byte> zero_point;
  std::vector<float> y;  // [rows, channels]
};

class PrimitiveProduct {
 public:
  // All arguments but the options must outlive it.
  PrimitiveProduct(const PackedModule& packed, const GemmInputs& inputs, const ProductCut& cut,
                   const PrimitiveOptions& options);

  // Asks the primitive about every number of rows, then has it multiply all of them at once, or
  // those that the panels leave: it unpacks the weights in every call. Batch by batch where that
  // would be too much, and then only the first ones where it is slow. kUnsupported and kUnavailable
  // as for GemmEngine::MultiplyPacked.
  Status Multiply(const PackedOperands& operands);

  // How many batches of the inputs it multiplies, and the outputs of one, [rows, N]; none of
  // batches that are multiplied panel by panel.
  size_t batches() const { return of_batches_.size(); }
  std::span<const float> Outputs(size_t batch) const { return of_batches_[batch]; }
  bool by_panels() const { return by_panels_; }
  // Copies output channels [n0, n0 + channels) of the packed weight and its parts. n0 is a multiple
  // of kModelUnit, and channels are even. Of weights in blocks it copies whole ones.
  void CopyPanel(const PackedOperands& operands, uint64_t n0, uint64_t channels,
                 PrimitivePanel& panel) const;
  // Multiplies them. Safe from any thread.
  Status MultiplyPanel(const PackedOperands& operands, uint64_t n0, uint64_t channels,
                       PrimitivePanel& panel) const;
  const GemmInfo& info() const { return info_; }

 private:
  Result<GemmInfo> Describe(const PackedProblem& whole, uint64_t rows) const;
  Status MultiplyAllRows(const PackedProblem& whole);
  Status MultiplyHotRows(const PackedProblem& whole);
  bool CanCopyPanels() const;
  uint64_t CopiedChannels(uint64_t n0, uint64_t channels) const;
  uint64_t PanelRows() const;
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
  bool by_panels_ = false;
  GemmInfo info_;
};

}  // namespace prepack
