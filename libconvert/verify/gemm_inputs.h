#ifndef PREPACK_VERIFY_GEMM_INPUTS_H_
#define PREPACK_VERIFY_GEMM_INPUTS_H_

// The activations that a packed module is multiplied with. The same on every machine: they are
// drawn from a seed that is the name of the module.
//
//   gaussian  64 rows, of which the first 1 and 8 count by themselves, too
//   outliers  8 Gaussian rows in which one of 256 channels is 20 times larger, as in language
//   models recorded  rows that the user gives one-hot   up to 64 rows that are zero but for one
//   channel in a group; together they reach every
//             group of the module (with more than 64 groups, row i reaches groups i, i + 64, …)

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "container/checkpoint.h"
#include "verify/packed_folder.h"
#include "verify/second_decoder.h"

namespace prepack {

// Rows that make one figure.
struct InputBatch {
  std::string_view name;  // "gaussian", …
  uint64_t first = 0;
  uint64_t rows = 0;
};

inline constexpr uint64_t kGaussianRows = 64;
inline constexpr uint64_t kMaxRecordedRows = 64;
// The batch with all Gaussian rows; the ones before it are its first rows.
inline constexpr size_t kAllGaussianRows = 2;

// A channel that is not zero.
struct HotInput {
  uint64_t k = 0;  // in the order of the model
  double value = 0;
};

class GemmInputs {
 public:
  // `dtype`: what the kernel is given. `recorded` may be null: the recorded activations, in which
  // those of a module have its name. kUsage when they do not fit the module.
  static Result<GemmInputs> Make(const PackedModule& packed, const SecondDecoder& source,
                                 DType dtype, const Checkpoint* recorded);

  uint64_t rows() const { return dense_rows_ + hot_.size(); }
  uint64_t k() const { return k_; }
  // Rounded to the dtype, in the order of inputs of the packed module, [rows, K].
  std::span<const float> given() const { return given_; }
  // The same rows before they were rounded, in the order of the model: first dense ones,
  // [dense_rows, K], then those that are zero but for these.
  uint64_t dense_rows() const { return dense_rows_; }
  std::span<const double> exact() const { return exact_; }
  const std::vector<std::vector<HotInput>>& hot() const { return hot_; }
  // Packed input channel j is channel order()[j] of the model, [K].
  std::span<const uint64_t> order() const { return order_; }

  const std::vector<InputBatch>& batches() const { return batches_; }

 private:
  GemmInputs() = default;
  Status ReadOrder(const PackedModule& packed);
  Status AddRecorded(const PackedModule& packed, const Checkpoint& recorded);
  // Appends the last exact or hot row to the given ones.
  void Give(DType dtype);

  uint64_t k_ = 0;
  uint64_t dense_rows_ = 0;
  std::vector<float> given_;
  std::vector<double> exact_;
  std::vector<std::vector<HotInput>> hot_;
  std::vector<uint64_t> order_;
  std::vector<InputBatch> batches_;
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_GEMM_INPUTS_H_
