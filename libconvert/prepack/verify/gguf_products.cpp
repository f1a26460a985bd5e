#include "prepack/verify/gguf_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "prepack/base/checked.h"
#include "prepack/base/random.h"
#include "prepack/gemm/reference.h"
#include "prepack/verify/gemm_check.h"

namespace prepack {
namespace {

constexpr uint64_t kLeastSampledRows = 16;
// A multiple of every block.
constexpr uint64_t kGgufSlabInputs = uint64_t{1} << 14;
// That a one-hot row reaches one of.
constexpr uint64_t kGgufGroup = 32;

uint64_t ColumnsOf(const gguf::Tensor& tensor) {
  return tensor.dims.front();
}

uint64_t SampledRows(const gguf::Tensor& tensor, uint64_t sampled_weights) {
  const uint64_t rows = std::max(kLeastSampledRows, sampled_weights / ColumnsOf(tensor));
  return std::min(rows, tensor.dims[1]);
}

// Rows that are multiplied at a time.
uint64_t PanelRows(uint64_t k) {
  return std::max<uint64_t>(kLeastSampledRows, kPanelWeights / k);
}

}  // namespace

void GgufInputs::Fill(uint64_t k, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  if (k_ != 0) return;
  const GemmInputs made = GemmInputs::MakePlain(k, CeilDiv(k, kGgufGroup), seed);
  batches_ = made.batches();
  given_.assign(made.given().begin(), made.given().end());
  // f32 holds all of the numbers exactly.
  exact_.assign(given_.begin(), given_.end());
  k_ = k;
}

const GgufInputs::Operand& GgufInputs::For(GgmlOperand operand) {
  const std::lock_guard lock(mutex_);
  const auto known = operands_.find(operand);
  if (known != operands_.end()) return known->second;
  Operand made{.x = GgmlActivations(operand, given_, k_), .kernel = {}};
  made.kernel.resize(made.x.m() * made.x.columns());
  for (uint64_t row = 0; row < made.x.m(); ++row) {
    made.x.CopyRow(row, std::span(made.kernel).subspan(row * made.x.columns(), made.x.columns()));
  }
  return operands_.emplace(operand, std::move(made)).first->second;
}

uint64_t GgufInputs::Bytes(uint64_t k) {
  constexpr uint64_t kRows = kGaussianRows + kOutlierRows + kMaxHotRows;
  constexpr uint64_t kOfNumber = 2 * sizeof(float) + 2 * sizeof(double) + 2;
  return kRows * k * kOfNumber;
}

void GgufSums::Merge(const GgufSums& other) {
  if (other.channels == 0) return;
  BatchSums::Merge(other);
  channels += other.channels;
  if (!other.batches.empty()) batches = other.batches;
}

bool GgufProducts::AreOf(const gguf::Tensor& tensor) {
  return tensor.dims.size() >= 2 && tensor.bytes != 0 && GgmlOperandOf(tensor.type).has_value();
}

uint64_t GgufProducts::SlabInputs(const gguf::Tensor& tensor) {
  const uint64_t k = ColumnsOf(tensor);
  return k <= kMostWholeInputs ? k : kGgufSlabInputs;
}

uint64_t GgufProducts::Memory(const gguf::Tensor& tensor, uint64_t sampled_weights) {
  const uint64_t k = SlabInputs(tensor);
  const uint64_t rows = std::min(SampledRows(tensor, sampled_weights), PanelRows(k));
  constexpr uint64_t kOfWeight = 2 * sizeof(double) + sizeof(float) + sizeof(int16_t);
  return rows * k * kOfWeight + 3 * ColumnsOf(tensor) * sizeof(float);
}

GgufProducts::GgufProducts(const GgufRows& rows, uint64_t sampled_weights, GgufInputCache& inputs)
    : rows_(rows),
      type_(rows.tensor().type),
      operand_(GgmlOperandOf(type_).value()),
      inputs_(inputs),
      channels_(rows.tensor().dims[1]),
      sampled_(SampledRows(rows.tensor(), sampled_weights)),
      seed_(SeedOfName(rows.tensor().name)) {}

void GgufProducts::Add(const GgufStripe& stripe, GgufScratch& scratch, WeightCounts& counts,
                       GgufSums& sums) const {
  const uint64_t k = rows_.columns();
  GgmlWeights weights(type_);
  scratch.row.resize(k);
  for (uint64_t row = 0; row < stripe.rows; ++row) {
    weights.Take(stripe.bytes.data() + row * rows_.row_bytes(), 0, 1, k);
    weights.CopyRow(0, scratch.row);
    rows_.Compare(stripe, stripe.first + row, scratch.row, counts);
  }
  ForSampled(stripe,
             [&](uint64_t first, uint64_t rows) { Multiply(stripe, first, rows, scratch, sums); });
}

void GgufProducts::ForSampled(const GgufStripe& stripe,
                              FunctionRef<void(uint64_t first, uint64_t rows)> work) const {
  const uint64_t end = stripe.first + stripe.rows;
  const uint64_t most = PanelRows(SlabInputs(rows_.tensor()));
  for (uint64_t matrix = stripe.first / channels_; matrix * channels_ < end; ++matrix) {
    const uint64_t place = SplitMix64(seed_ + matrix).Below(channels_ - sampled_ + 1);
    const uint64_t begin = matrix * channels_ + place;
    const uint64_t last = std::min(begin + sampled_, end);
    for (uint64_t first = std::max(begin, stripe.first); first < last; first += most) {
      work(first, std::min(most, last - first));
    }
  }
}

void GgufProducts::Multiply(const GgufStripe& stripe, uint64_t first, uint64_t rows,
                            GgufScratch& scratch, GgufSums& sums) const {
  const gguf::GgmlTypeInfo& info = gguf::InfoOf(type_);
  const uint64_t slab_inputs = SlabInputs(rows_.tensor());
  const std::byte* bytes = stripe.bytes.data() + (first - stripe.first) * rows_.row_bytes();
  for (uint64_t k0 = 0; k0 < rows_.columns(); k0 += slab_inputs) {
    const GgufSlab slab{.k = std::min(slab_inputs, rows_.columns() - k0), .k0 = k0};
    const std::shared_ptr<GgufInputs> inputs = inputs_.FindOrAdd(slab, GgufInputs::Bytes(slab.k));
    inputs->Fill(slab.k, rows_.columns() + k0);
    const GgufInputs::Operand& operand = inputs->For(operand_);
    GgmlWeights weights(type_);
    weights.Take(bytes + k0 / info.block * info.bytes, rows_.row_bytes(), rows, slab.k);
    FillTruth(stripe, first, weights, slab, scratch);

    const uint64_t m = inputs->rows();
    scratch.y.resize(m * rows);
    scratch.y_exact.resize(m * rows);
    scratch.y_kernel.resize(m * rows);
    weights.Multiply(operand.x, scratch.y);
    for (uint64_t i = 0; i < scratch.y.size(); ++i) {
      scratch.y[i] *= rows_.Factor(first + i % rows);
    }
    ReferenceGemm(m, rows, slab.k, inputs->exact(), scratch.exact, scratch.y_exact);
    ReferenceGemm(m, rows, operand.x.columns(), operand.kernel, scratch.kernel, scratch.y_kernel);
    sums.zeros =
        sums.zeros && std::ranges::all_of(scratch.exact, [](double weight) { return weight == 0; });
    sums.batches = inputs->batches();
    sums.Resize(sums.batches.size());
    for (size_t i = 0; i < sums.batches.size(); ++i) {
      const InputBatch& batch = sums.batches[i];
      const OutputBlock block{.n0 = first, .rows = batch.rows, .channels = rows};
      const auto part = [&](const auto& y) {
        return std::span(y).subspan(batch.first * rows, batch.rows * rows);
      };
      sums.kernel[i].Add(block, part(scratch.y_kernel), part(scratch.y));
      sums.end_to_end[i].Add(block, part(scratch.y_exact), part(scratch.y));
    }
  }
  sums.channels += rows;
}

// The weights of the source and, for the kernel, those of the file where they are these, rounded.
void GgufProducts::FillTruth(const GgufStripe& stripe, uint64_t first, const GgmlWeights& weights,
                             const GgufSlab& slab, GgufScratch& scratch) const {
  const uint64_t rows = weights.rows();
  const uint64_t blocks = operand_ == GgmlOperand::kQ8_1 ? slab.k / kGgufGroup : 0;
  const uint64_t columns = slab.k + blocks;
  scratch.exact.resize(rows * slab.k);
  scratch.kernel.resize(rows * columns);
  for (uint64_t row = 0; row < rows; ++row) {
    const std::span expected = rows_.Expected(stripe, first + row).subspan(slab.k0, slab.k);
    const auto factor = static_cast<double>(rows_.Factor(first + row));
    const std::span kernel = std::span(scratch.kernel).subspan(row * columns, columns);
    weights.CopyRow(row, kernel.first(slab.k));
    weights.CopyMinima(row, kernel.subspan(slab.k));
    double* exact = &scratch.exact[row * slab.k];
    float largest = 0;
    for (uint64_t k = 0; k < slab.k; ++k) {
      const uint64_t column = slab.k0 + k;
      if (k == 0 || column % rows_.bounded_together() == 0) {
        largest = rows_.Largest(stripe, first + row, column);
      }
      exact[k] = static_cast<double>(expected[k]);
      const double found = kernel[k] * factor;
      const auto bound = static_cast<double>(rows_.BoundOf(largest).Of(expected[k]));
      kernel[k] = std::abs(found - exact[k]) <= bound ? found : exact[k];
    }
  }
}

// Those of the last slab.
std::vector<InputBatch> GgufProducts::Batches() const {
  const uint64_t slab_inputs = SlabInputs(rows_.tensor());
  const uint64_t k0 = (rows_.columns() - 1) / slab_inputs * slab_inputs;
  const GgufSlab slab{.k = rows_.columns() - k0, .k0 = k0};
  const std::shared_ptr<GgufInputs> inputs = inputs_.FindOrAdd(slab, GgufInputs::Bytes(slab.k));
  inputs->Fill(slab.k, rows_.columns() + k0);
  return inputs->batches();
}

GemmFigures GgufProducts::Figures(const GgufSums& sums) const {
  std::vector<InputBatch> batches = sums.batches;
  if (batches.empty()) batches = Batches();
  batches.resize(std::min(batches.size(), sums.kernel.size()));
  return {.implementation = fmt::format("model of gguf/{}", gguf::InfoOf(type_).name),
          .activations = std::string(GgmlOperandName(operand_)),
          .channels = sums.channels,
          .inputs = sums.Figures(batches),
          .second_implementation = "",
          .agreement_db = {}};
}

// Sums are f32. What is multiplied with a minimum is a sum that was rounded to f16, and where
// weights are zero it cancels with what is multiplied with their codes.
ModuleBars GgufProducts::Bars() const {
  const bool quantized = operand_ != GgmlOperand::kF32 && operand_ != GgmlOperand::kF16 &&
                         operand_ != GgmlOperand::kBF16;
  const bool rounds_sums = operand_ == GgmlOperand::kQ8_1;
  return {.kernel_db = rounds_sums ? kMinKernelF16Db : kMinKernelF32Db,
          .rounded_twice = false,
          .cancels = false,
          .rounds_zeros = rounds_sums,
          .end_to_end_db = quantized ? kMinEndToEndInt8Db : kMinEndToEndDb,
          .recorded_db = {}};
}

}  // namespace prepack
