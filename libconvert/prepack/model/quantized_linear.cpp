#include "prepack/model/quantized_linear.h"

#include <fmt/format.h>

#include <utility>

#include "prepack/base/status.h"

namespace prepack {

Result<SharedOrder> KeptOrder::Get() const {
  thread_local SharedOrder last;
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

Status QuantizedLinear::CheckPanel(const PanelRange& range, size_t out_bytes) const {
  const bool inside = range.n0 <= n_ && range.rows <= n_ - range.n0 && range.k0 <= k_ &&
                      range.cols <= k_ - range.k0;
  const bool whole_bytes =
      !IsNibble(scheme_.code) ||
      (range.k0 % 2 == 0 && (range.cols % 2 == 0 || range.k0 + range.cols == k_));
  if (inside && whole_bytes && out_bytes == PanelBytes(scheme_.code, range)) return {};
  return Usage(module_, "the panel does not fit the module")
      .Found(fmt::format("channels {}+{}, inputs {}+{}, {} bytes", range.n0, range.rows, range.k0,
                         range.cols, out_bytes))
      .Expected(fmt::format("within [{}, {}], at even inputs", n_, k_));
}

Status QuantizedLinear::CheckRows(uint64_t n0, uint64_t rows, size_t out_count) const {
  if (n0 <= n_ && rows <= n_ - n0 && out_count == rows * groups()) return {};
  return Usage(module_, "the rows do not fit the module")
      .Found(fmt::format("channels {}+{}, {} values", n0, rows, out_count))
      .Expected(fmt::format("within {} channels of {} groups", n_, groups()));
}

}  // namespace prepack
