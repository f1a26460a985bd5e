// Compares two modules row by row as steps (code - zero point) and scales. Comparing dequantized
// floats alone would call modules different that only hold the same numbers in another container.

#include "prepack/diff/module_diff.h"

#include <algorithm>

#include "prepack/base/status.h"
#include "prepack/check/check.h"
#include "prepack/formats/stored_linear.h"

namespace prepack {

std::string Weights::Describe() const {
  return linear_ != nullptr ? DescribeScheme(linear_->scheme())
                            : std::string(DTypeName(tensor_->dtype));
}

double Weights::Rounding() const {
  switch (linear_ != nullptr ? linear_->stored_scale_dtype() : tensor_->dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kF32:
      return 0x1p-24;
    default:
      return 0x1p-8;
  }
}

Status Weights::Read(uint64_t n0, uint64_t rows, DequantizeBuffers& buffers,
                     std::span<float> out) const {
  if (linear_ != nullptr) return DequantizeRows(*linear_, n0, rows, buffers, out);
  return ReadFloats(*checkpoint_, *tensor_, n0 * k(), out);
}

Result<std::optional<StoredWeight>> Weights::At(uint64_t n, uint64_t k) const {
  if (linear_ == nullptr) return std::optional<StoredWeight>();
  PREPACK_TRY_ASSIGN(const SharedOrder read, linear_->KOrder());
  const InputOrder& order = *read;
  const uint64_t at = order.empty()
                          ? k
                          : static_cast<uint64_t>(
                                std::ranges::find(order, static_cast<uint32_t>(k)) - order.begin());
  const Scheme& scheme = linear_->scheme();
  const uint64_t first = at - at % 2;  // panels of nibbles begin at even inputs
  const PanelRange range{
      .n0 = n, .rows = 1, .k0 = first, .cols = std::min<uint64_t>(2, linear_->k() - first)};
  std::vector<std::byte> codes(PanelBytes(scheme.code, range));
  std::vector<float> scales(linear_->groups());
  std::vector<uint8_t> zero_points(linear_->groups());
  PREPACK_TRY(linear_->ReadCodes(range, codes));
  PREPACK_TRY(linear_->ReadScales(n, 1, scales));
  PREPACK_TRY(linear_->ReadZeroPoints(n, 1, zero_points));
  const uint64_t group = at / scheme.group_size;
  const uint8_t bits = PanelCode(scheme.code, codes, range.cols, 0, at - first);
  StoredWeight weight{.code = bits, .zero_point = zero_points[group], .scale = scales[group]};
  if (!IsFloatCode(scheme.code)) {
    weight.code = static_cast<int>(CodeValues(scheme.code)[bits]);
    weight.step = weight.code - weight.zero_point;
  }
  return std::optional(weight);
}

bool IsFloatMatrix(const StoredTensor& tensor) {
  const bool is_float =
      tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kF32;
  return is_float && tensor.shape.size() == 2;
}

namespace {

// Each of the two products code · scale is rounded by up to half a unit.
constexpr double kProductRounding = 0x1p-23;

// The group of each input channel.
Result<std::vector<uint32_t>> GroupsOfInputs(const QuantizedLinear& linear) {
  PREPACK_TRY_ASSIGN(const SharedOrder read, linear.KOrder());
  const InputOrder& order = *read;
  std::vector<uint32_t> groups(linear.k());
  const uint64_t size = linear.scheme().group_size;
  for (uint64_t first = 0; first < groups.size(); first += size) {
    for (uint64_t j = first; j < std::min(first + size, linear.k()); ++j) {
      groups[order.empty() ? j : order[j]] = static_cast<uint32_t>(first / size);
    }
  }
  return groups;
}

// The groups of an input channel on either side, or of some in a row.
struct GroupRun {
  uint32_t a = 0;
  uint32_t b = 0;
};

std::vector<GroupRun> RunsOf(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<GroupRun> runs;
  for (uint64_t k = 0; k < a.size(); ++k) {
    if (runs.empty() || runs.back().a != a[k] || runs.back().b != b[k]) {
      runs.push_back({.a = a[k], .b = b[k]});
    }
  }
  return runs;
}

}  // namespace

ModuleComparison::ModuleComparison(Weights a, Weights b)
    : a_(a), b_(b), tolerance_(std::max(a.Rounding(), b.Rounding()) + kProductRounding) {}

uint64_t ModuleComparison::MemoryOf(uint64_t rows) const {
  uint64_t bytes = a_.k() * sizeof(GroupRun);
  for (const Weights* side : {&a_, &b_}) {
    // The group of each input channel, for weights and for scales.
    bytes += rows * side->k() * sizeof(float) + 2 * side->k() * sizeof(uint32_t);
    if (side->linear() == nullptr) continue;
    bytes += MemoryOfRows(*side->linear(), rows) + rows * side->linear()->groups() * sizeof(float);
  }
  return bytes;
}

Status ModuleComparison::Compare(uint64_t n0, uint64_t rows, DiffBuffers& buffers,
                                 WeightDifferences& differences) const {
  const uint64_t k = a_.k();
  buffers.a.resize(rows * k);
  buffers.b.resize(rows * k);
  PREPACK_TRY(a_.Read(n0, rows, buffers.reading_a, buffers.a));
  PREPACK_TRY(b_.Read(n0, rows, buffers.reading_b, buffers.b));
  differences.Add(buffers.a, buffers.b, n0 * k, k, tolerance_);
  if (a_.linear() == nullptr || b_.linear() == nullptr) return {};
  // Where values or scales differ already, the verdict does not depend on further scales.
  if (differences.unequal != 0 || differences.other_scales) return {};
  return CompareScales(n0, rows, buffers, differences);
}

// Equal values with equal scales come from equal steps.
Status ModuleComparison::CompareScales(uint64_t n0, uint64_t rows, DiffBuffers& buffers,
                                       WeightDifferences& differences) const {
  PREPACK_TRY_ASSIGN(const std::vector<uint32_t> inputs_a, GroupsOfInputs(*a_.linear()));
  PREPACK_TRY_ASSIGN(const std::vector<uint32_t> inputs_b, GroupsOfInputs(*b_.linear()));
  const std::vector<GroupRun> runs = RunsOf(inputs_a, inputs_b);
  const uint64_t groups_a = a_.linear()->groups();
  const uint64_t groups_b = b_.linear()->groups();
  buffers.scales_a.resize(rows * groups_a);
  buffers.scales_b.resize(rows * groups_b);
  PREPACK_TRY(a_.linear()->ReadScales(n0, rows, buffers.scales_a));
  PREPACK_TRY(b_.linear()->ReadScales(n0, rows, buffers.scales_b));
  for (uint64_t row = 0; row < rows; ++row) {
    const float* a = buffers.scales_a.data() + row * groups_a;
    const float* b = buffers.scales_b.data() + row * groups_b;
    for (const GroupRun& run : runs) {
      differences.other_scales |= !SameBits(a[run.a], b[run.b]);
    }
  }
  return {};
}

Status ModuleComparison::Explain(std::vector<WorstElement>& worst) const {
  for (WorstElement& element : worst) {
    PREPACK_TRY_ASSIGN(std::optional<StoredWeight> a, a_.At(element.n, element.k));
    PREPACK_TRY_ASSIGN(std::optional<StoredWeight> b, b_.At(element.n, element.k));
    element.a.stored = a;
    element.b.stored = b;
  }
  return {};
}

}  // namespace prepack
