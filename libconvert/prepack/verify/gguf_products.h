#pragma once

// The products of a tensor of a GGUF file, and how close they are to the truth.
//
// The model of ggml's product (gemm/model_ggml.h) takes every row of the tensor apart, and each
// weight must be the source's, as the second decoder reads it. A sample of the rows is multiplied,
// with the activations of gemm_inputs.h in f32: of every matrix, as a stack of experts has several,
// a run of rows whose place the name of the tensor decides. Both references are f64:
//   kernel      activations as ggml quantizes them; weights that the type had to round, as the file
//               has them, all others as the source has them
//   end to end  x · Wᵀ with nothing rounded
// Of rows with very many columns, slabs of these are multiplied, each with activations of its own.

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/gemm/model_ggml.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/gguf_weights.h"
#include "prepack/verify/judgement.h"
#include "prepack/verify/kept_entries.h"
#include "prepack/verify/products.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Activations of so many input channels, as they are and as ggml multiplies them.
class GgufInputs {
 public:
  struct Operand {
    GgmlActivations x;
    std::vector<double> kernel;  // [rows, x.columns()]
  };

  // Those of a K of 4096 and of 14,336, as layers of Llama have them, with two operands each.
  static constexpr uint64_t kMostKept = uint64_t{64} << 20;

  // Makes them, unless they are there. From any thread, as all that follows.
  void Fill(uint64_t k, uint64_t seed);
  uint64_t rows() const { return exact_.size() / k_; }
  const std::vector<InputBatch>& batches() const { return batches_; }
  std::span<const double> exact() const { return exact_; }  // [rows, k]
  const Operand& For(GgmlOperand operand);

  // With one operand.
  static uint64_t Bytes(uint64_t k);

 private:
  std::mutex mutex_;
  uint64_t k_ = 0;
  std::vector<InputBatch> batches_;
  std::vector<float> given_;
  std::vector<double> exact_;
  std::map<GgmlOperand, Operand> operands_;
};

// Input channels of a slab, and the first of them.
struct GgufSlab {
  uint64_t k = 0;
  uint64_t k0 = 0;

  friend bool operator==(const GgufSlab&, const GgufSlab&) = default;
};

using GgufInputCache = KeptEntries<GgufSlab, GgufInputs>;

// Memory of one thread.
struct GgufScratch {
  std::vector<float> row;
  std::vector<double> exact;   // [rows, k of a slab], weights
  std::vector<double> kernel;  // [rows, columns of the operand]
  std::vector<float> y;
  std::vector<double> y_exact;
  std::vector<double> y_kernel;
};

// What a stripe adds.
struct GgufSums : BatchSums {
  uint64_t channels = 0;            // that were multiplied
  std::vector<InputBatch> batches;  // none: as they are made

  void Merge(const GgufSums& other);
};

class GgufProducts {
 public:
  // Is the tensor a matrix, or some, of a type that there is a model for? Vectors are not
  // multiplied with activations.
  static bool AreOf(const gguf::Tensor& tensor);

  // `sampled_weights`: of each matrix, that are multiplied if it has more. The arguments must
  // outlive it.
  GgufProducts(const GgufRows& rows, uint64_t sampled_weights, GgufInputCache& inputs);

  // Compares all weights of a stripe, and multiplies those of its rows that are in the sample. From
  // any thread.
  void Add(const GgufStripe& stripe, GgufScratch& scratch, WeightCounts& counts,
           GgufSums& sums) const;

  // Figures without bars, and the bars.
  GemmFigures Figures(const GgufSums& sums) const;
  ModuleBars Bars() const;

  // At most, without the activations.
  static uint64_t Memory(const gguf::Tensor& tensor, uint64_t sampled_weights);
  // Of the slabs of the tensor.
  static uint64_t SlabInputs(const gguf::Tensor& tensor);

 private:
  // Calls `work` with runs of rows of the stripe that are in the sample, few at a time.
  void ForSampled(const GgufStripe& stripe,
                  FunctionRef<void(uint64_t first, uint64_t rows)> work) const;
  std::vector<InputBatch> Batches() const;
  void Multiply(const GgufStripe& stripe, uint64_t first, uint64_t rows, GgufScratch& scratch,
                GgufSums& sums) const;
  void FillTruth(const GgufStripe& stripe, uint64_t first, const GgmlWeights& weights,
                 const GgufSlab& slab, GgufScratch& scratch) const;

  const GgufRows& rows_;
  gguf::GgmlType type_;
  GgmlOperand operand_;
  GgufInputCache& inputs_;
  uint64_t channels_;  // of a matrix
  uint64_t sampled_;   // of these
  uint64_t seed_;      // of the places of the sample
};

}  // namespace prepack
