#pragma once

// The activations that a packed module is multiplied with. They are the same on every machine: the
// seed is the number of input channels, so that modules of the same K share them (input_cache.h),
// or, for a module whose activations have a static scale, its name.
//
// A module with very many input channels gets them in slabs, so that memory does not grow with K:
// each slab has its own activations, which are zero in all other input channels.
//
//   gaussian: 64 rows; the first row and the first 8 also count by themselves.
//
//   outliers: 8 Gaussian rows in which one channel in 256 is 20 times larger, as in language
//   models.
//
//   recorded: the rows that the user gives.
//
//   one-hot: up to 16 rows that are zero except for one channel per group. Together they reach
//   every group of the module: with more than 16 groups, row i reaches groups i, i + 16, ….

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/random.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// Rows that make one figure.
struct InputBatch {
  std::string_view name;  // "gaussian", …
  uint64_t first = 0;
  uint64_t rows = 0;
};

inline constexpr uint64_t kGaussianRows = 64;
inline constexpr uint64_t kOutlierRows = 8;
inline constexpr uint64_t kMaxRecordedRows = 64;
inline constexpr uint64_t kMaxHotRows = 16;
// The batch with all Gaussian rows; the ones before it are its first rows.
inline constexpr size_t kAllGaussianRows = 2;

// Memory of activations of so many input channels, and of the same as the kernel multiplies them.
// `recorded`: with the most rows that the user may give.
uint64_t BytesOfInputs(uint64_t k, bool recorded);

// A channel that is not zero.
struct HotInput {
  uint64_t k = 0;  // in the order of `exact`
  double value = 0;
};

// The parameters of a normal distribution.
struct Distribution {
  double mean = 0;
  double deviation = 1;
};

// Gaussian rows and outliers, in the order of the model.
struct DrawnRows {
  DrawnRows(const Distribution& distribution, uint64_t k, const SplitMix64& seeded);

  SplitMix64 random;  // as it is behind them
  std::vector<double> rows;
};

class GemmInputs {
 public:
  // `dtype`: what the kernel is given. `recorded` may be null: the recorded activations, in which
  // those of a module have its name. kUsage when they do not fit the module. `slab`: of packed
  // input channels; none: all.
  // `drawn`: the module's, which DrawFor makes; null: Make does.
  static Result<GemmInputs> Make(const PackedModule& packed, const SecondDecoder& source,
                                 DType dtype, const Checkpoint* recorded,
                                 const std::optional<InputSlab>& slab = {},
                                 std::shared_ptr<const DrawnRows> drawn = nullptr);
  // Of modules whose activations have no static scale: those of all of the same K.
  static DrawnRows DrawFor(uint64_t k);
  // Activations in f32 that are no packed module's, of k input channels in so many groups. Other
  // seeds have other ones.
  static GemmInputs MakePlain(uint64_t k, uint64_t groups, uint64_t seed);

  uint64_t rows() const { return dense_rows_ + hot_.size(); }
  // Input channels: those of the slab, else all.
  uint64_t k() const { return k_; }
  const std::optional<InputSlab>& slab() const { return slab_; }
  // Rounded to the dtype, in the order of inputs of the packed module, [rows, columns]: k() and,
  // with a slab, the zero that models want behind them.
  uint64_t columns() const { return slab_ ? k_ + 1 : k_; }
  std::span<const float> given() const { return given_; }
  // The same rows before they were rounded, in the order of the model, or that of the slab: first
  // dense ones, [dense_rows, k()], then those that are zero but for these.
  uint64_t dense_rows() const { return dense_rows_; }
  std::span<const double> exact() const { return drawn_->rows; }
  const std::vector<std::vector<HotInput>>& hot() const { return hot_; }
  // Column j of `given` is column order()[j] of `exact`, [k()].
  std::span<const uint64_t> order() const { return order_; }
  // And column k of `exact` is column places()[k] of `given`.
  std::span<const uint64_t> places() const { return places_; }
  // Column i of `exact` is input channel channels()[i] of the model; empty: input channel i.
  std::span<const uint64_t> channels() const { return channels_; }

  uint64_t ModelInput(uint64_t column) const {
    return channels_.empty() ? column : channels_[column];
  }

  const std::vector<InputBatch>& batches() const { return batches_; }

 private:
  GemmInputs() = default;
  void TakeDense(std::shared_ptr<const DrawnRows> drawn);
  void DrawHot(const Distribution& distribution, uint64_t groups, SplitMix64& random);
  Status ReadOrder(const PackedModule& packed);
  Status AddRecorded(const PackedModule& packed, const Checkpoint& recorded);
  // Appends the last exact or hot row to the given ones.
  void Give(DType dtype);

  std::optional<InputSlab> slab_;
  uint64_t k_ = 0;
  uint64_t dense_rows_ = 0;
  std::vector<float> given_;
  std::shared_ptr<const DrawnRows> drawn_;  // or a copy, with those that were recorded behind them
  std::vector<std::vector<HotInput>> hot_;
  std::vector<uint64_t> order_;
  std::vector<uint64_t> places_;
  std::vector<uint64_t> channels_;
  std::vector<InputBatch> batches_;
};

}  // namespace prepack
