#include "prepack/verify/primitive_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/dtype.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/layouts/table.h"
#include "prepack/model/scheme.h"

namespace prepack {
namespace {

// oneDNN's reference implementation computes some 2^28 products per second; batches that would take
// longer are refused.
constexpr uint64_t kMaxReferenceProducts = uint64_t{1} << 28;

// Why the primitive should not multiply so many rows although it could; empty if it should.
std::string_view WhyTooMuch(const GemmInfo& described, uint64_t rows, uint64_t n, uint64_t inputs) {
  if (described.is_reference && rows * n * inputs > kMaxReferenceProducts) {
    return "oneDNN has only a reference implementation for this module, which takes too long";
  }
  return rows > kMaxOutputs / n ? "oneDNN would compute too many outputs at once" : "";
}

}  // namespace

PrimitiveProduct::PrimitiveProduct(const PackedModule& packed, const GemmInputs& inputs,
                                   const ProductCut& cut, const PrimitiveOptions& options)
    : packed_(packed), inputs_(inputs), cut_(cut), options_(options) {}

Status PrimitiveProduct::Multiply(const PackedOperands& operands) {
  const PackedProblem whole{.layout = packed_.layout().id,
                            .request = packed_.request(),
                            .packed = operands,
                            .input = {.m = 0, .dtype = InputDType(packed_), .x = {}},
                            .repack = options_.repack};
  // One product of all rows may still be described as one of few rows is.
  bool reference = false;
  for (const InputBatch& batch : inputs_.batches()) {
    PREPACK_TRY_ASSIGN(info_, Describe(whole, RowsAtOnce(batch)));
    reference = reference || info_.is_reference;
  }
  if (reference && !options_.must_multiply) {
    return Unsupported(options_.engine.name(),
                       "for these weights and this CPU it has only its reference implementation, "
                       "which is thousands of times slower, so the model of the kernel multiplied");
  }
  const bool at_once =
      !inputs_.slab() && !reference && inputs_.rows() <= kMaxOutputs / packed_.request().n;
  by_panels_ = at_once && options_.sampled && CanCopyPanels();
  if (!by_panels_) return at_once ? MultiplyAllRows(whole) : MultiplyByBatch(whole);
  of_batches_.resize(inputs_.batches().size());
  return options_.whole ? MultiplyHotRows(whole) : Status();
}

// In columns of codes, or in blocks of channels.
bool PrimitiveProduct::CanCopyPanels() const {
  const PackRequest& request = packed_.request();
  if (IsNibble(request.scheme.code)) return true;
  return request.weights_desc && *request.weights_desc == DefaultW8A8Desc(request);
}

Result<GemmInfo> PrimitiveProduct::Describe(const PackedProblem& whole, uint64_t rows) const {
  if (CancellationRequested()) return Interrupted(packed_.name());
  PackedProblem problem = whole;
  problem.input.m = rows;
  return options_.engine.DescribePacked(problem);
}

Status PrimitiveProduct::MultiplyAllRows(const PackedProblem& whole) {
  PREPACK_TRY(MultiplyRows(whole, {.name = "all", .first = 0, .rows = inputs_.rows()}));
  const std::span<const float> y = outputs_.back();
  const uint64_t n = packed_.request().n;
  for (const InputBatch& batch : inputs_.batches()) {
    of_batches_.push_back(y.subspan(batch.first * n, batch.rows * n));
  }
  return {};
}

// They are the last batch.
Status PrimitiveProduct::MultiplyHotRows(const PackedProblem& whole) {
  PREPACK_TRY(MultiplyRows(whole, inputs_.batches().back()));
  of_batches_.back() = outputs_.back();
  return {};
}

namespace {

// Elements [n0, n0 + count) of each row of [rows, n] elements of `bits`; they begin and end with a
// byte.
std::vector<std::byte> CopyColumns(std::span<const std::byte> from, uint64_t n, uint64_t bits,
                                   uint64_t n0, uint64_t count) {
  const uint64_t row = n * bits / 8;
  const uint64_t width = count * bits / 8;
  std::vector<std::byte> to(from.size() / row * width);
  for (uint64_t i = 0; i < to.size() / width; ++i) {
    std::ranges::copy(from.subspan(i * row + n0 * bits / 8, width),
                      to.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  return to;
}

}  // namespace

namespace {

// Channels of a block of BA16a64b4a.
constexpr uint64_t kBlockChannels = 64;

// Of y [rows, all] the first columns of each row.
void KeepColumns(uint64_t rows, uint64_t all, uint64_t columns, std::vector<float>& y) {
  if (columns == all) return;
  for (uint64_t row = 0; row < rows; ++row) {
    std::copy_n(y.data() + row * all, columns, y.data() + row * columns);
  }
  y.resize(rows * columns);
}

// Of blocks of all input channels, and of the sums for each output channel that lie behind them.
std::vector<std::byte> CopyBlocks(const PackedOperands& operands, uint64_t n0, uint64_t channels) {
  const uint64_t block = kBlockChannels * CeilDiv(operands.k, kBlockChannels) * kBlockChannels;
  const uint64_t blocks = CeilDiv(operands.n, kBlockChannels);
  const uint64_t first = n0 / kBlockChannels;
  const uint64_t count = CeilDiv(channels, kBlockChannels);
  const std::span<const std::byte> values = operands.weight.first(blocks * block);
  const std::span<const std::byte> copied = values.subspan(first * block, count * block);
  std::vector<std::byte> to(copied.begin(), copied.end());
  const uint64_t sums = kBlockChannels * sizeof(int32_t);  // of a block
  for (uint64_t at = values.size(); at < operands.weight.size(); at += blocks * sums) {
    const auto of_blocks = operands.weight.subspan(at + first * sums, count * sums);
    to.insert(to.end(), of_blocks.begin(), of_blocks.end());
  }
  return to;
}

}  // namespace

// Of blocks all output channels.
uint64_t PrimitiveProduct::CopiedChannels(uint64_t n0, uint64_t channels) const {
  if (IsNibble(packed_.request().scheme.code)) return channels;
  return cut_.Unpacked(n0, channels, packed_.request().n);
}

void PrimitiveProduct::CopyPanel(const PackedOperands& operands, uint64_t n0, uint64_t channels,
                                 PrimitivePanel& panel) const {
  if (!IsNibble(packed_.request().scheme.code)) {
    panel.weight = CopyBlocks(operands, n0, channels);
    return;
  }
  constexpr uint64_t kNibble = 4;
  panel.weight = CopyColumns(operands.weight, operands.n, kNibble, n0, channels);
  panel.scale =
      CopyColumns(operands.scale, operands.n, DTypeBits(operands.scale_dtype), n0, channels);
  panel.zero_point = CopyColumns(operands.zero_point, operands.n, kNibble, n0, channels);
}

Status PrimitiveProduct::MultiplyPanel(const PackedOperands& operands, uint64_t n0,
                                       uint64_t channels, PrimitivePanel& panel) const {
  const uint64_t copied = CopiedChannels(n0, channels);
  PackRequest request = packed_.request();
  request.n = copied;
  PackedOperands own = operands;
  own.n = copied;
  own.weight = panel.weight;
  const auto take = [&](std::span<const std::byte>& part, DType dtype) {
    const uint64_t element = DTypeBits(dtype) / 8;
    if (!part.empty()) part = part.subspan(n0 * element, copied * element);
  };
  if (IsNibble(request.scheme.code)) {
    own.scale = panel.scale;
    own.zero_point = panel.zero_point;
  } else {
    request.weights_desc = DefaultW8A8Desc(request);
    take(own.scale, own.scale_dtype);
    take(own.weight_sum, DType::kF32);
  }
  take(own.bias, own.bias_dtype);
  const uint64_t rows = PanelRows();
  const PackedProblem problem{.layout = packed_.layout().id,
                              .request = request,
                              .packed = own,
                              .input = {.m = rows,
                                        .dtype = InputDType(packed_),
                                        .x = inputs_.given().first(rows * inputs_.columns())}};
  panel.y.resize(rows * copied);
  PREPACK_TRY(options_.engine.MultiplyPacked(problem, panel.y).status());
  KeepColumns(rows, copied, channels, panel.y);
  return {};
}

// The one-hot rows are the last ones.
uint64_t PrimitiveProduct::PanelRows() const {
  return options_.whole ? inputs_.dense_rows() : inputs_.rows();
}

Status PrimitiveProduct::MultiplyByBatch(const PackedProblem& whole) {
  const uint64_t n = packed_.request().n;
  uint64_t done = 0;  // rows
  for (const InputBatch& batch : inputs_.batches()) {
    PREPACK_TRY_ASSIGN(const GemmInfo described, Describe(whole, RowsAtOnce(batch)));
    // With slabs, multiply only a few rows if there is a model: for the primitive, every slab takes
    // as long as the whole module.
    if (inputs_.slab() && !options_.must_multiply && batch.rows > kSecondRows) return {};
    std::string_view why = WhyTooMuch(described, batch.rows, n, cut_.k * cut_.slabs());
    if (why.empty()) why = WhyTooMuch({}, done + batch.rows, n, 0);
    if (!why.empty()) {
      return options_.must_multiply ? Unsupported(fmt::format("module {}", packed_.name()), why)
                                    : Status();
    }
    PREPACK_TRY(MultiplyRows(whole, batch));
    of_batches_.emplace_back(outputs_.back());
    done += batch.rows;
  }
  return {};
}

// A primitive takes all input channels, including those outside the slab, which are zero.
uint64_t PrimitiveProduct::RowsAtOnce(const InputBatch& batch) const {
  if (!inputs_.slab()) return batch.rows;
  return std::clamp<uint64_t>(kPaddedInputs / cut_.k, 1, batch.rows);
}

Status PrimitiveProduct::MultiplyRows(const PackedProblem& whole, const InputBatch& batch) {
  const uint64_t n = packed_.request().n;
  const uint64_t k0 = inputs_.slab() ? inputs_.slab()->k0 : 0;
  const uint64_t columns = inputs_.columns();
  const std::span<const float> given =
      inputs_.given().subspan(batch.first * columns, batch.rows * columns);
  std::vector<float> y(batch.rows * n);
  std::vector<float> padded;
  for (uint64_t first = 0; first < batch.rows;) {
    if (CancellationRequested()) return Interrupted(packed_.name());
    PackedProblem problem = whole;
    problem.input.m = std::min(RowsAtOnce(batch), batch.rows - first);
    problem.input.x = given;
    if (inputs_.slab()) {
      padded.assign(problem.input.m * cut_.k, 0);
      for (uint64_t row = 0; row < problem.input.m; ++row) {
        std::ranges::copy(given.subspan((first + row) * columns, inputs_.k()),
                          padded.begin() + static_cast<std::ptrdiff_t>(row * cut_.k + k0));
      }
      problem.input.x = padded;
    }
    PREPACK_TRY_ASSIGN(GemmInfo info,
                       options_.engine.MultiplyPacked(
                           problem, std::span(y).subspan(first * n, problem.input.m * n)));
    info_ = std::move(info);
    first += problem.input.m;
  }
  outputs_.push_back(std::move(y));
  return {};
}

}  // namespace prepack
