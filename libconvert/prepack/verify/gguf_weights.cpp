#include "prepack/verify/gguf_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/gguf/blocks.h"

namespace prepack {
namespace {

using gguf::GgmlType;

// Half of the last place: of f16, of bf16, and twice that of f32 (a factor that was rounded, and
// its product).
constexpr float kHalf = 0x1p-11F;
constexpr float kBrain = 0x1p-8F;
constexpr float kSingle = 0x1p-22F;

float Largest(std::span<const float> weights) {
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::abs(weight));
  return largest;
}

}  // namespace

void WeightCounts::Add(WeightCounts other) {
  identical += other.identical;
  rounded += other.rounded;
  if (wrong == 0) first_wrong = std::move(other.first_wrong);
  wrong += other.wrong;
}

GgufComparison::GgufComparison(const gguf::Model& model, const gguf::Tensor& tensor,
                               const gguf::ManifestTensor& record, const GgufTruth& truth)
    : model_(model),
      tensor_(tensor),
      record_(record),
      truth_(truth),
      rows_(record.rows),
      columns_(tensor.dims.empty() ? 1 : tensor.dims.front()),
      stripe_rows_(gguf::StripeRows(columns_)) {}

Status GgufComparison::Prepare() {
  const std::string where = model_.Where(tensor_);
  const auto malformed = [&](std::string_view what) {
    return Malformed(where, what).Hint("Was the file made from this source?");
  };
  if (rows_.rows() == 0 || tensor_.bytes % rows_.rows() != 0) {
    return malformed("the manifest has other rows than the tensor");
  }
  row_bytes_ = tensor_.bytes / rows_.rows();
  if (gguf::BytesOf(tensor_.type, {columns_}) != row_bytes_) {
    return malformed("the manifest has other rows than the tensor");
  }
  for (const gguf::RowPiece& piece : record_.rows) {
    const gguf::Source* source = truth_.sources[piece.source];
    if (source == nullptr || !piece.IsInside(source->rows()) || source->columns() != columns_) {
      return malformed("the source does not have the rows that the manifest names");
    }
  }
  if (tensor_.type != GgmlType::kNVFP4) return {};
  const std::string name = tensor_.name.substr(0, tensor_.name.rfind('.')) + ".scale";
  const gguf::Tensor* factors = model_.FindTensor(name);
  factors_.assign(1, 1);
  if (factors == nullptr) return {};
  const uint64_t count = factors->bytes / sizeof(float);
  if (factors->type != GgmlType::kF32 || count == 0 || rows_.rows() % count != 0) {
    return Malformed(model_.Where(*factors), "not the factors of its tensor");
  }
  factors_.resize(count);
  return model_.Visit(*factors, 0, factors->bytes, [&](const std::byte* bytes) {
    gguf::Dequantize(GgmlType::kF32, {bytes, static_cast<size_t>(factors->bytes)}, factors_);
  });
}

uint64_t GgufComparison::stripes() const {
  return CeilDiv(rows_.rows(), stripe_rows_);
}

Result<WeightCounts> GgufComparison::Compare(uint64_t stripe) const {
  const uint64_t first = stripe * stripe_rows_;
  const uint64_t count = std::min(stripe_rows_, rows_.rows() - first);
  std::vector<float> weights(count * columns_);
  PREPACK_TRY(
      model_.Visit(tensor_, first * row_bytes_, count * row_bytes_, [&](const std::byte* bytes) {
        gguf::Dequantize(tensor_.type, {bytes, static_cast<size_t>(count * row_bytes_)}, weights);
      }));
  WeightCounts counts;
  PREPACK_TRY(rows_.ForReads(first, count, [&](std::span<const gguf::PlacedRow> rows) {
    return CompareRows(rows, first, weights, counts);
  }));
  return counts;
}

Status GgufComparison::CompareRows(std::span<const gguf::PlacedRow> rows, uint64_t first,
                                   std::span<const float> weights, WeightCounts& counts) const {
  const uint64_t n0 = rows.front().row;
  std::vector<float> expected;
  PREPACK_TRY(
      ReadSource(*truth_.sources[rows.front().source], n0, rows.back().row - n0 + 1, expected));
  for (const gguf::PlacedRow& row : rows) {
    CompareRow(row, weights.subspan((row.index - first) * columns_, columns_),
               std::span(expected).subspan((row.row - n0) * columns_, columns_), counts);
  }
  return {};
}

// Rows as the second decoder, or the file, has them.
Status GgufComparison::ReadSource(const gguf::Source& source, uint64_t n0, uint64_t rows,
                                  std::vector<float>& expected) const {
  expected.resize(rows * columns_);
  if (source.plain != nullptr) {
    const GgmlType stored = gguf::FloatTypeOf(source.plain->dtype);
    std::vector<std::byte> bytes(rows * columns_ * gguf::InfoOf(stored).bytes);
    PREPACK_TRY(truth_.source.Read(*source.plain, n0 * bytes.size() / rows, bytes));
    gguf::Dequantize(stored, bytes, expected);
    return {};
  }
  const uint64_t each = source.rows_of_module();
  DecodedRows decoded;
  for (uint64_t done = 0; done < rows;) {
    const QuantizedLinear& linear = *source.modules[(n0 + done) / each];
    const uint64_t row = (n0 + done) % each;
    const uint64_t count = std::min(rows - done, each - row);
    const SecondPiece stored = truth_.decoder.FindInStack(linear.module(), linear.n())
                                   .value_or(SecondPiece{.module = linear.module()});
    // Channels of a stack may alternate: they are decoded one by one then.
    const uint64_t at_once = stored.step == 1 ? count : 1;
    for (uint64_t part = 0; part < count; part += at_once) {
      PREPACK_TRY(truth_.decoder.Decode(
          stored.module, columns_, stored.first + (row + part) * stored.step, at_once, decoded));
      for (uint64_t r = 0; r < at_once; ++r) {
        float* out = &expected[(done + part + r) * columns_];
        const double* scales = &decoded.scales[r * decoded.groups()];
        for (uint64_t k = 0; k < columns_; ++k) {
          out[k] = static_cast<float>(decoded.Step(r, k) * scales[decoded.group_of[k]]);
        }
      }
    }
    done += count;
  }
  return {};
}

// How far a weight may be off, where `largest` is the largest of its row; of one that was
// quantized, of its block.
float GgufComparison::Bound(float expected, float largest) const {
  const float magnitude = std::abs(expected);
  switch (tensor_.type) {
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_1:
      // The minimum is rounded, and it can be as large as the range of its group.
      return 2 * kHalf * largest;
    case GgmlType::kBF16:
      return kBrain * magnitude;
    case GgmlType::kF16:
      return kHalf * magnitude;
    case GgmlType::kNVFP4:
      return kSingle * magnitude;
    case GgmlType::kQ8_0:
      // Half a step, and the rounding of the step to f16, below whose numbers it may be.
      if (record_.rounded.quantized != 0) return largest * (0.501F / 127 + kHalf) + 0x1p-18F;
      [[fallthrough]];
    default:
      return record_.rounded.scales != 0 ? kHalf * magnitude : 0;
  }
}

void GgufComparison::CompareRow(const gguf::PlacedRow& row, std::span<const float> weights,
                                std::span<const float> expected, WeightCounts& counts) const {
  const float factor =
      factors_.empty() ? 1 : factors_[row.index / (rows_.rows() / factors_.size())];
  const bool quantized = record_.rounded.quantized != 0;
  const uint64_t near = quantized ? gguf::InfoOf(tensor_.type).block : columns_;
  float largest = 0;
  for (uint64_t k = 0; k < columns_; ++k) {
    if (k % near == 0) largest = Largest(expected.subspan(k, near));
    const float weight = weights[k] * factor;
    if (weight == expected[k]) {
      ++counts.identical;
    } else if (std::abs(weight - expected[k]) <= Bound(expected[k], largest)) {
      ++counts.rounded;
    } else if (counts.wrong++ == 0) {
      counts.first_wrong = fmt::format("row {}, column {} is {}, and {} in the source", row.index,
                                       k, weight, expected[k]);
    }
  }
}

}  // namespace prepack
