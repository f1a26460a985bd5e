#include "prepack/verify/gguf_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/gguf/blocks.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

using gguf::GgmlType;

// Half of the last place: of f16, of bf16, and twice that of f32 (a factor that was rounded, and
// its product).
constexpr float kHalf = 0x1p-11F;
constexpr float kBrain = 0x1p-8F;
constexpr float kSingle = 0x1p-22F;

// Weights of a stripe: what all levels look at stays in the L2 cache.
constexpr uint64_t kCachedWeights = uint64_t{1} << 18;

// A multiple of 16, because some checkpoints store several channels in a word.
uint64_t CachedRows(uint64_t columns) {
  return std::max<uint64_t>(1, kCachedWeights / std::max<uint64_t>(columns, 1) / 16) * 16;
}

// Nearly all rows are: without a branch, so that it becomes vector code.
bool AreEqual(const float* weights, float factor, const float* expected, uint64_t count) {
  uint32_t differ = 0;
  for (uint64_t i = 0; i < count; ++i) {
    differ |= static_cast<uint32_t>(weights[i] * factor != expected[i]);
  }
  return differ == 0;
}

// In lanes, for vector code. NaN is none.
float LargestOf(std::span<const float> weights) {
  std::array<float, 16> lanes = {};
  const float* from = weights.data();
  const size_t whole = weights.size() / lanes.size() * lanes.size();
  for (size_t i = 0; i < whole; i += lanes.size()) {
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const float magnitude = std::abs(from[i + lane]);
      lanes[lane] = lanes[lane] < magnitude ? magnitude : lanes[lane];
    }
  }
  for (size_t i = whole; i < weights.size(); ++i) lanes[0] = std::max(lanes[0], std::abs(from[i]));
  return std::ranges::max(lanes);
}

// How many are equal, and how many equal or as near as the bound says.
struct NearCounts {
  uint32_t equal = 0;
  uint32_t near = 0;
};

NearCounts CountNear(const float* weights, float factor, const float* expected, uint64_t count,
                     GgufRows::Bound bound) {
  NearCounts counts;
  for (uint64_t i = 0; i < count; ++i) {
    const float weight = weights[i] * factor;
    const float off = std::abs(weight - expected[i]);
    const auto is_equal = static_cast<uint32_t>(weight == expected[i]);
    counts.equal += is_equal;
    counts.near += is_equal | static_cast<uint32_t>(off <= bound.Of(expected[i]));
  }
  return counts;
}

template <typename Step>
void ScaleSteps(const Step* steps, uint64_t count, double scale, float* weights) {
  const auto single = static_cast<float>(scale);
  if (static_cast<double>(single) == scale) {
    for (uint64_t i = 0; i < count; ++i) weights[i] = static_cast<float>(steps[i]) * single;
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    weights[i] = static_cast<float>(static_cast<double>(steps[i]) * scale);
  }
}

// Products, rounded once to f32, and the largest scale of each row.
void WeightsOf(const DecodedRows& decoded, std::span<float> weights, std::span<float> steps) {
  const uint64_t inputs = decoded.inputs();
  const std::vector<uint64_t> run_ends = RunsOf(decoded.group_of);
  for (uint64_t row = 0; row < decoded.rows(); ++row) {
    uint64_t k = 0;
    steps[row] = 0;
    for (const uint64_t end : run_ends) {
      const double scale = decoded.scales[row * decoded.groups() + decoded.group_of[k]];
      steps[row] = std::max(steps[row], static_cast<float>(std::abs(scale)));
      const uint64_t at = row * inputs + k;
      if (decoded.small.empty()) {
        ScaleSteps(&decoded.steps[at], end - k, scale, &weights[at]);
      } else {
        ScaleSteps(&decoded.small[at], end - k, scale, &weights[at]);
      }
      k = end;
    }
  }
}

}  // namespace

void WeightCounts::Add(WeightCounts other) {
  identical += other.identical;
  rounded += other.rounded;
  if (wrong == 0) first_wrong = std::move(other.first_wrong);
  wrong += other.wrong;
}

GgufRows::GgufRows(const gguf::Model& model, const gguf::Tensor& tensor,
                   const gguf::ManifestTensor& record, const GgufTruth& truth)
    : model_(model),
      tensor_(tensor),
      record_(record),
      truth_(truth),
      rows_(record.rows),
      columns_(tensor.dims.empty() ? 1 : tensor.dims.front()),
      stripe_rows_(CachedRows(columns_)) {}

Status GgufRows::Prepare() {
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

uint64_t GgufRows::MemoryOfStripe(uint64_t columns) {
  constexpr uint64_t kOfWeight = 4 * sizeof(float);  // expected, scattered, and to decode them
  return CachedRows(columns) * columns * kOfWeight;
}

Status GgufRows::Read(uint64_t first, uint64_t rows, GgufStripe& out) const {
  out.first = first;
  out.rows = rows;
  out.bytes.resize(out.rows * row_bytes_);
  PREPACK_TRY(model_.Visit(
      tensor_, out.first * row_bytes_, out.bytes.size(),
      [&](const std::byte* bytes) { std::copy_n(bytes, out.bytes.size(), out.bytes.data()); }));
  out.expected.resize(out.rows * columns_);
  out.steps.resize(out.rows);
  return rows_.ForReads(out.first, out.rows, [&](std::span<const gguf::PlacedRow> placed) {
    return ReadRows(placed, out);
  });
}

// Straight to their places, if they have the order of the source.
Status GgufRows::ReadRows(std::span<const gguf::PlacedRow> rows, GgufStripe& out) const {
  const gguf::PlacedRow& first = rows.front();
  const gguf::Source& source = *truth_.sources[first.source];
  bool in_order = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    in_order = in_order && rows[i].row == first.row + i && rows[i].index == first.index + i;
  }
  const std::span expected = std::span(out.expected);
  const std::span steps = std::span(out.steps);
  const uint64_t place = first.index - out.first;
  if (in_order) {
    return ReadSource(source, first.row, expected.subspan(place * columns_, rows.size() * columns_),
                      steps.subspan(place, rows.size()), out);
  }
  const uint64_t count = rows.back().row - first.row + 1;
  out.scattered.resize(count * columns_);
  out.scattered_steps.resize(count);
  PREPACK_TRY(ReadSource(source, first.row, out.scattered, out.scattered_steps, out));
  for (const gguf::PlacedRow& row : rows) {
    const uint64_t from = row.row - first.row;
    std::copy_n(&out.scattered[from * columns_], columns_,
                &expected[(row.index - out.first) * columns_]);
    steps[row.index - out.first] = out.scattered_steps[from];
  }
  return {};
}

// Rows as the second decoder, or the file, has them.
Status GgufRows::ReadSource(const gguf::Source& source, uint64_t n0, std::span<float> expected,
                            std::span<float> steps, GgufStripe& memory) const {
  const uint64_t rows = steps.size();
  if (source.plain != nullptr) {
    const GgmlType stored = gguf::FloatTypeOf(source.plain->dtype);
    const uint64_t stored_row = columns_ * gguf::InfoOf(stored).bytes;
    memory.stored.resize(rows * stored_row);
    PREPACK_TRY(truth_.source.Read(*source.plain, n0 * stored_row, memory.stored));
    gguf::Dequantize(stored, memory.stored, expected);
    std::ranges::fill(steps, 0.0F);
    return {};
  }
  const uint64_t each = source.rows_of_module();
  for (uint64_t done = 0; done < rows;) {
    const QuantizedLinear& linear = *source.modules[(n0 + done) / each];
    const uint64_t row = (n0 + done) % each;
    const uint64_t count = std::min(rows - done, each - row);
    const SecondPiece stored = truth_.decoder.FindInStack(linear.module(), linear.n())
                                   .value_or(SecondPiece{.module = std::string(linear.module())});
    // Channels of a stack may alternate: they are decoded one by one then.
    const uint64_t at_once = stored.step == 1 ? count : 1;
    for (uint64_t part = 0; part < count; part += at_once) {
      memory.decoded.takes_small = true;
      PREPACK_TRY(truth_.decoder.Decode(stored.module, columns_,
                                        stored.first + (row + part) * stored.step, at_once,
                                        memory.decoded));
      WeightsOf(memory.decoded, expected.subspan((done + part) * columns_, at_once * columns_),
                steps.subspan(done + part, at_once));
    }
    done += count;
  }
  return {};
}

GgufRows::Bound GgufRows::BoundOf(float largest) const {
  switch (tensor_.type) {
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_1:
      // The minimum is rounded, and it can be as large as the range of its group.
      return {.constant = 2 * kHalf * largest};
    case GgmlType::kBF16:
      return {.relative = kBrain};
    case GgmlType::kF16:
      return {.relative = kHalf};
    case GgmlType::kNVFP4:
      return {.relative = kSingle};
    case GgmlType::kQ8_0:
      // Half a step, and the rounding of the step to f16, below whose numbers it may be.
      if (record_.rounded.quantized != 0) {
        return {.constant = largest * (0.501F / 127 + kHalf) + 0x1p-18F};
      }
      [[fallthrough]];
    default:
      return {.relative = record_.rounded.scales != 0 ? kHalf : 0};
  }
}

float GgufRows::Factor(uint64_t row) const {
  return factors_.empty() ? 1 : factors_[row / (rows_.rows() / factors_.size())];
}

uint64_t GgufRows::bounded_together() const {
  return record_.rounded.quantized != 0 ? gguf::InfoOf(tensor_.type).block : columns_;
}

float GgufRows::Largest(const GgufStripe& stripe, uint64_t row, uint64_t k) const {
  const uint64_t together = bounded_together();
  const float half = tensor_.type == GgmlType::kQ5_1 ? 16 : 8;
  float largest = record_.rounded.quantized == 0 ? half * stripe.steps[row - stripe.first] : 0;
  return std::max(largest,
                  LargestOf(Expected(stripe, row).subspan(k / together * together, together)));
}

void GgufRows::Compare(const GgufStripe& stripe, uint64_t row, std::span<const float> weights,
                       WeightCounts& counts) const {
  const std::span<const float> expected = Expected(stripe, row);
  const float factor = Factor(row);
  if (AreEqual(weights.data(), factor, expected.data(), columns_)) {
    counts.identical += columns_;
    return;
  }
  const uint64_t together = bounded_together();
  for (uint64_t k = 0; k < columns_; k += together) {
    const uint64_t count = std::min(together, columns_ - k);
    const Bound bound = BoundOf(Largest(stripe, row, k));
    const auto [equal, near] = CountNear(&weights[k], factor, &expected[k], count, bound);
    counts.identical += equal;
    counts.rounded += near - equal;
    if (near == count) continue;
    if (counts.wrong == 0) {
      uint64_t at = k;
      while (CountNear(&weights[at], factor, &expected[at], 1, bound).near != 0) ++at;
      counts.first_wrong = fmt::format("row {}, column {} is {}, and {} in the source", row, at,
                                       weights[at] * factor, expected[at]);
    }
    counts.wrong += count - near;
  }
}

}  // namespace prepack
