#include "prepack/model/window_linear.h"

#include <fmt/format.h>

#include <utility>

#include "prepack/base/status.h"

namespace prepack {
namespace {

class WindowLinear final : public QuantizedLinear {
 public:
  WindowLinear(const QuantizedLinear& whole, std::string module, const PanelRange& window)
      : whole_(whole), window_(window) {
    Describe(whole);
    module_ = std::move(module);
    n_ = window.rows;
    k_ = window.cols;
    scheme_.group_size = k_;
    if (scheme_.granularity == Granularity::kTensor) scheme_.scale_rows = n_;
    source_bytes_ = whole.source_bytes() / (whole.n() / n_) / (whole.k() / k_);
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    PREPACK_TRY(CheckPanel(range, out.size()));
    return whole_.ReadCodes(InWhole(range), out);
  }
  // Rows of a narrower window do not follow each other in the source.
  std::optional<CodesInSource> FindCodes(const PanelRange& range) const override {
    if (k_ != whole_.k()) return std::nullopt;
    return whole_.FindCodes(InWhole(range));
  }
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    return whole_.ReadScales(window_.n0 + n0, rows, out);
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    return whole_.ReadZeroPoints(window_.n0 + n0, rows, out);
  }
  // Those of the whole, which is read once more for each of its windows.
  Result<uint64_t> CountStrayBits() const override { return whole_.CountStrayBits(); }

 private:
  PanelRange InWhole(const PanelRange& range) const {
    return {.n0 = window_.n0 + range.n0,
            .rows = range.rows,
            .k0 = window_.k0 + range.k0,
            .cols = range.cols};
  }

  const QuantizedLinear& whole_;
  PanelRange window_;
};

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> TakeWindow(const QuantizedLinear& whole,
                                                    std::string module, const PanelRange& window) {
  const auto is_inside = [](uint64_t first, uint64_t count, uint64_t all) {
    return count > 0 && first <= all && count <= all - first;
  };
  const bool whole_groups =
      whole.groups() == 1 && whole.scheme().granularity != Granularity::kBlock;
  if (!whole_groups || whole.reordered() || whole.stacked_bias() ||
      !is_inside(window.n0, window.rows, whole.n()) ||
      !is_inside(window.k0, window.cols, whole.k())) {
    return Unsupported(
               fmt::format("module {}", whole.module()),
               fmt::format("output channels {} to {} by input channels {} to {} of it "
                           "cannot become a module of their own",
                           window.n0, window.n0 + window.rows, window.k0, window.k0 + window.cols))
        .Found(fmt::format("{} [{}, {}]", DescribeScheme(whole.scheme()), whole.n(), whole.k()));
  }
  return std::unique_ptr<QuantizedLinear>(
      std::make_unique<WindowLinear>(whole, std::move(module), window));
}

}  // namespace prepack
