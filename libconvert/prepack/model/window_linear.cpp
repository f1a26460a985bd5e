#include "prepack/model/window_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "prepack/base/status.h"

namespace prepack {
namespace {

class WindowPlaces final : public SourcePlaces {
 public:
  WindowPlaces(const SourcePlaces& whole, const PanelRange& window)
      : whole_(whole), window_(window) {}

  StoredBits WhereCode(uint64_t n, uint64_t k) const override {
    return whole_.WhereCode(window_.n0 + n, window_.k0 + k);
  }
  StoredBits WhereScale(uint64_t n, uint64_t g) const override {
    return whole_.WhereScale(window_.n0 + n, g);
  }
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override {
    return whole_.WhereZeroPoint(window_.n0 + n, g);
  }
  PanelRange CodesNear(uint64_t byte) const override {
    const PanelRange near = whole_.CodesNear(byte);
    PanelRange inside;
    Overlap(near.n0, near.rows, window_.n0, window_.rows, inside.n0, inside.rows);
    Overlap(near.k0, near.cols, window_.k0, window_.cols, inside.k0, inside.cols);
    return inside;
  }

 private:
  // What [first, first + count) has of the window [begin, begin + size), counted from its start.
  static void Overlap(uint64_t first, uint64_t count, uint64_t begin, uint64_t size, uint64_t& from,
                      uint64_t& common) {
    const uint64_t low = std::max(first, begin);
    const uint64_t high = std::min(first + count, begin + size);
    common = high > low ? high - low : 0;
    from = common > 0 ? low - begin : 0;
  }

  const SourcePlaces& whole_;
  PanelRange window_;
};

class WindowLinear final : public QuantizedLinear {
 public:
  WindowLinear(const QuantizedLinear& whole, std::string_view module, const PanelRange& window)
      : whole_(whole), window_(window) {
    Describe(whole);
    module_.Own(module);
    n_ = window.rows;
    k_ = window.cols;
    Scheme scheme = whole.scheme();
    scheme.group_size = k_;
    if (scheme.granularity == Granularity::kTensor) scheme.scale_rows = n_;
    scheme_ = scheme;
    if (whole.places() != nullptr) places_.emplace(*whole.places(), window);
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
  const SourcePlaces* places() const override { return places_ ? &*places_ : nullptr; }

 private:
  PanelRange InWhole(const PanelRange& range) const {
    return {.n0 = window_.n0 + range.n0,
            .rows = range.rows,
            .k0 = window_.k0 + range.k0,
            .cols = range.cols};
  }

  const QuantizedLinear& whole_;
  PanelRange window_;
  std::optional<WindowPlaces> places_;
};

}  // namespace

Result<std::unique_ptr<QuantizedLinear>> TakeWindow(const QuantizedLinear& whole,
                                                    std::string_view module,
                                                    const PanelRange& window) {
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
  return std::unique_ptr<QuantizedLinear>(std::make_unique<WindowLinear>(whole, module, window));
}

}  // namespace prepack
