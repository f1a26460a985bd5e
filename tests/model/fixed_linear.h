#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "prepack/model/quantized_linear.h"

namespace prepack::testing {

// A module that holds its numbers in memory.
class FixedLinear : public QuantizedLinear {
 public:
  FixedLinear(const Scheme& scheme, uint64_t n, uint64_t k, std::vector<std::byte> codes,
              std::vector<float> scales, std::vector<uint8_t> zero_points,
              std::vector<uint32_t> order)
      : codes_(std::move(codes)), scales_(std::move(scales)), zero_points_(std::move(zero_points)) {
    scheme_ = scheme;
    n_ = n;
    k_ = k;
    if (!order.empty()) {
      k_order_ = std::make_unique<KeptOrder>([order = std::move(order)] { return order; });
    }
  }

  void SetModule(std::string_view module) { module_.Own(module); }
  void SetInput(const InputQuantization& input) { SetRare({.input = input}); }
  void SetWideRows(uint32_t rows) { wide_rows_ = rows; }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    const size_t row_bytes = PanelRowBytes(scheme_->code, k_);
    const size_t piece = PanelRowBytes(scheme_->code, range.cols);
    for (uint64_t row = 0; row < range.rows; ++row) {
      const size_t from = (range.n0 + row) * row_bytes + PanelRowBytes(scheme_->code, range.k0);
      std::copy_n(codes_.begin() + static_cast<long>(from), piece,
                  out.begin() + static_cast<long>(row * piece));
    }
    return {};
  }
  Status ReadScales(uint64_t n0, uint64_t /*rows*/, std::span<float> out) const override {
    std::copy_n(scales_.begin() + static_cast<long>(n0 * groups()), out.size(), out.begin());
    return {};
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t /*rows*/, std::span<uint8_t> out) const override {
    std::copy_n(zero_points_.begin() + static_cast<long>(n0 * groups()), out.size(), out.begin());
    return {};
  }

 private:
  std::vector<std::byte> codes_;
  std::vector<float> scales_;
  std::vector<uint8_t> zero_points_;
};

}  // namespace prepack::testing
