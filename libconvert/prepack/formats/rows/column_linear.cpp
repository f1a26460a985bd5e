// An expert of a stack whose matrices are stored [K, N], as the model multiplies with them: output
// channels lie side by side, so that reading transposes.
//
//     EXPERTS.X        F8_E4M3 [E, K, N]    code (n, k) of expert e is byte (e · K + k) · N + n
//     EXPERTS.X_scale  [E, ⌈K/B⌉, ⌈N/C⌉]    or one for each expert
//
// FP4 is U8 [E, K/2, N], with input channels 2m and 2m + 1 in the low and the high half of a byte,
// as in a panel.

#include <algorithm>
#include <memory>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/rows/row_linear.h"
#include "prepack/kernels/kernels.h"

namespace prepack {
namespace {

// So many output channels at a time: runs of 256 bytes in the file.
constexpr uint64_t kWideRows = 256;

class ColumnLinear final : public StoredLinear {
 public:
  ColumnLinear(const Checkpoint& checkpoint, const RowModule& parts);

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override {
    const uint64_t byte = (parts_.expert * k_ + k) / codes_per_byte_ * n_ + n;
    if (codes_per_byte_ == 1) return WhereElement(*parts_.codes, byte);
    return {{.tensor = parts_.codes->name, .bit = 8 * byte + 4 * (k % 2), .bits = 4}};
  }
  StoredBits WhereScale(uint64_t n, uint64_t g) const override {
    return WhereElement(*parts_.scale, ScaleIndex(n, g));
  }
  StoredBits WhereZeroPoint(uint64_t /*n*/, uint64_t /*g*/) const override { return {}; }
  PanelRange CodesNear(uint64_t byte) const override {
    const uint64_t k = byte / n_ * codes_per_byte_;
    if (k / k_ != parts_.expert) return {};
    return {.n0 = byte % n_, .rows = 1, .k0 = k % k_, .cols = codes_per_byte_};
  }

 private:
  // Blocks of output channels.
  uint64_t ScaleColumns() const { return CeilDiv(n_, scheme_->scale_rows); }
  uint64_t ScaleIndex(uint64_t n, uint64_t g) const {
    return (parts_.expert * groups() + g) * ScaleColumns() + n / scheme_->scale_rows;
  }

  RowTensors parts_;
  uint64_t codes_per_byte_;  // of input channels; 2 divides K
};

ColumnLinear::ColumnLinear(const Checkpoint& checkpoint, const RowModule& parts)
    : StoredLinear(checkpoint),
      parts_(static_cast<const RowTensors&>(parts)),
      codes_per_byte_(IsNibble(parts.scheme.code) ? 2 : 1) {
  module_.BorrowFrom(parts.codes->name, parts.module);
  scheme_ = parts.scheme;
  n_ = parts.n;
  k_ = parts.k;
  wide_rows_ = kWideRows;
  stored_scale_dtype_ =
      parts.global_scale ? DType::kF32 : ScaleDType(*parts.scale, parts.scale_form);
  AddSource(*parts.codes, parts.experts);
  AddSource(*parts.scale, parts.experts);
  if (parts.global_scale) AddSource(*parts.global_scale_tensor, parts.experts);
  for (const StoredTensor* tensor : parts.side_tensors) AddSource(*tensor, parts.experts);
  SetRare({.global_scale = parts.global_scale,
           .input_global_scale = parts.input_global_scale,
           .stacked_bias = parts.BiasRow()});
}

Status ColumnLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  const uint64_t runs = range.cols / codes_per_byte_;
  Scratch<std::byte> stored(range.rows * runs);
  PREPACK_TRY(checkpoint().ReadRuns(
      *parts_.codes,
      {.offset = (parts_.expert * k_ + range.k0) / codes_per_byte_ * n_ + range.n0,
       .run_bytes = range.rows,
       .stride = n_,
       .runs = runs},
      stored));
  TransposeUnits(1)(stored.data(), range.rows, runs, range.rows, out.data(), runs);
  if (scheme_->code != CodeType::kF8E4M3) return {};
  return CheckFp8Codes(checkpoint(), *parts_.codes, range, out);
}

Status ColumnLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok() || rows == 0) return status;
  const uint64_t first = n0 / scheme_->scale_rows;
  Scratch<float> run((n0 + rows - 1) / scheme_->scale_rows + 1 - first);
  for (uint64_t g = 0; g < groups(); ++g) {
    PREPACK_TRY(
        ReadScaleNumbers(checkpoint(), *parts_.scale, parts_.scale_form, ScaleIndex(n0, g), run));
    for (uint64_t row = 0; row < rows; ++row) {
      const float scale = run[(n0 + row) / scheme_->scale_rows - first];
      out[row * groups() + g] = global_scale() ? global_scale()->Apply(scale) : scale;
    }
  }
  return CheckScales(*parts_.scale, n0, rows, out);
}

Status ColumnLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  PREPACK_TRY(CheckRows(n0, rows, out.size()));
  std::ranges::fill(out, ZeroOfSymmetric(scheme()));
  return {};
}

}  // namespace

std::unique_ptr<QuantizedLinear> MakeColumnLinear(const Checkpoint& checkpoint,
                                                  const RowModule& parts) {
  return std::make_unique<ColumnLinear>(checkpoint, parts);
}

}  // namespace prepack
