#include "formats/trimmed_linear.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/scratch.h"
#include "formats/finding.h"

namespace prepack {
namespace {

class TrimmedLinear final : public QuantizedLinear {
 public:
  TrimmedLinear(std::unique_ptr<QuantizedLinear> padded, uint64_t k) : padded_(std::move(padded)) {
    module_ = padded_->module();
    scheme_ = padded_->scheme();
    n_ = padded_->n();
    k_ = k;
    stored_scale_dtype_ = padded_->stored_scale_dtype();
    source_tensors_ = padded_->source_tensors();
    source_bytes_ = padded_->source_bytes();
    if (scheme_.granularity == Granularity::kChannel) scheme_.group_size = k;
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    if (range.k0 > k_ || range.cols > k_ - range.k0) {
      return Usage(module_, "the panel does not fit the module")
          .Found(fmt::format("inputs {}+{}", range.k0, range.cols))
          .Expected(fmt::format("within {}", k_));
    }
    Status status = padded_->ReadCodes(range, out);
    return status.ok() && range.k0 + range.cols == k_ ? CheckDropped(range) : status;
  }
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    return padded_->ReadScales(n0, rows, out);
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    return padded_->ReadZeroPoints(n0, rows, out);
  }
  // Channels that are left lie where they were; more of them are near a byte than there are.
  const SourcePlaces* places() const override { return padded_->places(); }

 private:
  Status CheckDropped(const PanelRange& range) const {
    const PanelRange tail{.n0 = range.n0, .rows = range.rows, .k0 = k_, .cols = padded_->k() - k_};
    Scratch<std::byte> codes(PanelBytes(scheme_.code, tail));
    Scratch<uint8_t> zero_points(range.rows * groups());
    Status status = padded_->ReadCodes(tail, codes);
    if (status.ok()) status = padded_->ReadZeroPoints(range.n0, range.rows, zero_points);
    if (!status.ok()) return status;
    for (uint64_t row = 0; row < range.rows; ++row) {
      const uint8_t zero_point = zero_points[(row + 1) * groups() - 1];
      for (uint64_t col = 0; col < tail.cols; ++col) {
        const uint8_t code = PanelCode(scheme_.code, codes, tail.cols, row, col);
        if (code == zero_point) continue;
        return Malformed(module_, "an input channel that the model does not have has a weight")
            .Found(fmt::format("code {} at [{}, {}], zero point {}", code, range.n0 + row, k_ + col,
                               zero_point))
            .Expected(fmt::format("zeros from input channel {} on", k_))
            .Id(FindingId("autoround-padding"));
      }
    }
    return {};
  }

  std::unique_ptr<QuantizedLinear> padded_;
};

}  // namespace

std::unique_ptr<QuantizedLinear> TrimInputs(std::unique_ptr<QuantizedLinear> padded, uint64_t k) {
  return std::make_unique<TrimmedLinear>(std::move(padded), k);
}

}  // namespace prepack
