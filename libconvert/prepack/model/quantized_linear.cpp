#include "prepack/model/quantized_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/base/thread_kept.h"

namespace prepack {

Result<SharedOrder> KeptOrder::Get() const {
  auto& last = KeptByThread<SharedOrder, KeptOrder>();
  const std::lock_guard lock(mutex_);
  SharedOrder order = order_.lock();
  if (order == nullptr) {
    PREPACK_TRY_ASSIGN(InputOrder read, read_());
    order = std::make_shared<const InputOrder>(std::move(read));
    order_ = order;
  }
  last = order;
  return order;
}

const QuantizedLinear::RareNumbers& QuantizedLinear::rare() const {
  static const RareNumbers none;
  return rare_ == nullptr ? none : *rare_;
}

void QuantizedLinear::SetRare(const RareNumbers& rare) {
  rare_ = rare == RareNumbers{} ? nullptr : std::make_unique<const RareNumbers>(rare);
}

void QuantizedLinear::Describe(const QuantizedLinear& other) {
  module_.Borrow(other.module());
  scheme_ = other.scheme_;
  n_ = other.n_;
  k_ = other.k_;
  SetRare(other.rare());
  stored_scale_dtype_ = other.stored_scale_dtype_;
  zeros_may_borrow_ = other.zeros_may_borrow_;
  wide_rows_ = other.wide_rows_;
  source_tensors_ = other.source_tensors_;
  source_bytes_ = other.source_bytes_;
}

void QuantizedLinear::ShareOrder(const QuantizedLinear& other) {
  if (!other.reordered()) return;
  k_order_ = std::make_unique<const KeptOrder>([&other]() -> Result<InputOrder> {
    PREPACK_TRY_ASSIGN(const SharedOrder order, other.KOrder());
    return InputOrder(*order);
  });
}

namespace {

// Of a module that can only be read in its k_order: whole rows are read, and their codes put where
// the model has them.
class ModelOrderLinear final : public QuantizedLinear {
 public:
  explicit ModelOrderLinear(const QuantizedLinear& ordered) : ordered_(ordered) {
    Describe(ordered);
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    return ordered_.ReadScales(n0, rows, out);
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    return ordered_.ReadZeroPoints(n0, rows, out);
  }
  Result<uint64_t> CountStrayBits() const override { return ordered_.CountStrayBits(); }

 private:
  const QuantizedLinear& ordered_;
};

Status ModelOrderLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  PREPACK_TRY(CheckPanel(range, out.size()));
  PREPACK_TRY_ASSIGN(const SharedOrder read, ordered_.KOrder());
  const InputOrder& order = *read;
  const CodeType code = scheme_->code;
  const PanelRange whole{.n0 = range.n0, .rows = range.rows, .k0 = 0, .cols = k_};
  Scratch<std::byte> rows(PanelBytes(code, whole));
  const std::span<std::byte> ordered(rows.data(), PanelBytes(code, whole));
  PREPACK_TRY(ordered_.ReadCodes(whole, ordered));
  std::ranges::fill(out, std::byte{0});
  const size_t row_bytes = PanelRowBytes(code, range.cols);
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t j = 0; j < k_; ++j) {
      const uint64_t col = order[j] - range.k0;
      if (order[j] < range.k0 || col >= range.cols) continue;
      const uint8_t value = PanelCode(code, ordered, k_, row, j);
      std::byte& to = out[row * row_bytes + (IsNibble(code) ? col / 2 : col)];
      to |= static_cast<std::byte>(IsNibble(code) && col % 2 != 0 ? value << 4 : value);
    }
  }
  return {};
}

}  // namespace

std::unique_ptr<QuantizedLinear> QuantizedLinear::InModelOrder() const {
  return std::make_unique<ModelOrderLinear>(*this);
}

Status QuantizedLinear::CheckPanel(const PanelRange& range, size_t out_bytes) const {
  const bool inside = range.n0 <= n_ && range.rows <= n_ - range.n0 && range.k0 <= k_ &&
                      range.cols <= k_ - range.k0;
  const bool whole_bytes =
      !IsNibble(scheme_->code) ||
      (range.k0 % 2 == 0 && (range.cols % 2 == 0 || range.k0 + range.cols == k_));
  if (inside && whole_bytes && out_bytes == PanelBytes(scheme_->code, range)) return {};
  return Usage(module(), "the panel does not fit the module")
      .Found(fmt::format("channels {}+{}, inputs {}+{}, {} bytes", range.n0, range.rows, range.k0,
                         range.cols, out_bytes))
      .Expected(fmt::format("within [{}, {}], at even inputs", n_, k_));
}

Status QuantizedLinear::CheckRows(uint64_t n0, uint64_t rows, size_t out_count) const {
  if (n0 <= n_ && rows <= n_ - n0 && out_count == rows * groups()) return {};
  return Usage(module(), "the rows do not fit the module")
      .Found(fmt::format("channels {}+{}, {} values", n0, rows, out_count))
      .Expected(fmt::format("within {} channels of {} groups", n_, groups()));
}

}  // namespace prepack
