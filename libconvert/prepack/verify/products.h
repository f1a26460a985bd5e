#pragma once

// The sums behind a Figure (report.h), compensated and in f64, so that neither the number of
// outputs nor their order affects the figures.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/measure/baseline.h"
#include "prepack/model/stacked_linear.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Neumaier's summation: the rounding errors are summed apart.
class CompensatedSum {
 public:
  CompensatedSum() = default;
  // One that was summed up elsewhere. A sum that is not finite has no error.
  CompensatedSum(double sum, double error) : sum_(sum), error_(std::isfinite(sum) ? error : 0) {}

  void Add(double value) {
    const double sum = sum_ + value;
    if (std::isfinite(sum)) {
      error_ += std::abs(sum_) >= std::abs(value) ? (sum_ - sum) + value : (value - sum) + sum_;
    }
    sum_ = sum;
  }
  void Add(const CompensatedSum& other) {
    Add(other.sum_);
    Add(other.error_);
  }
  double Value() const { return sum_ + error_; }
  // As it is kept in notes: no bit is lost.
  Json Write() const;
  static CompensatedSum Read(JsonFields& fields, std::string_view key);

 private:
  double sum_ = 0;
  double error_ = 0;
};

// Decibel() of base/decibel.h; NaN where the sums prove nothing.
double DecibelOrNaN(double signal, double noise);

// Outputs of a block of output channels, [rows, channels] row-major.
struct OutputBlock {
  uint64_t n0 = 0;  // the first channel
  uint64_t rows = 0;
  uint64_t channels = 0;
};

// Sums over blocks; every channel comes in one block.
class FigureSums {
 public:
  // `signal` is the truth, `value` what is judged. A value that is not finite where the truth is
  // counts as infinite noise.
  void Add(const OutputBlock& block, std::span<const double> signal, std::span<const float> value);
  void Merge(const FigureSums& other);
  Figure Result() const;
  Json Write() const;
  static FigureSums Read(JsonFields fields);

 private:
  void AddChannel(uint64_t n, double signal, double noise);

  CompensatedSum signal_;
  CompensatedSum noise_;
  CompensatedSum value_;  // Σ value²
  CompensatedSum dot_;
  double max_error_ = 0;
  uint64_t worst_channel_ = 0;
  double worst_db_ = std::numeric_limits<double>::infinity();
  double worst_ratio_ = std::numeric_limits<double>::infinity();  // signal to noise, of the same
};

// The sums of all batches of activations.
struct BatchSums {
  bool zeros = true;                   // every weight is zero in the source
  std::vector<FigureSums> kernel;      // by batch
  std::vector<FigureSums> end_to_end;  // by batch

  void Resize(size_t batches);
  void Merge(const BatchSums& other);
  // A sum of zeros proves nothing where weights could have made another.
  Figure FigureOf(const FigureSums& sums) const;
  // Bars are not set.
  std::vector<InputFigures> Figures(std::span<const InputBatch> batches) const;
};

// A packed module against the same layer of the unquantized model: its weights, and what it
// computes. Recorded activations are taken where there are any, else Gaussian ones.

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
                                      const GemmInputs& inputs);

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
  const PackedModule* packed_ = nullptr;
  std::vector<BaselineWeight> weights_;  // of the members of the packed module
  const GemmInputs* inputs_ = nullptr;
  size_t batch_ = 0;
  std::vector<float> bias_;  // [N], zero where a member has none
};

}  // namespace prepack
