#include "canonical/dequantized_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float_convert.h"
#include "canonical/dequantize.h"

namespace prepack {
namespace {

class DequantizedLinear final : public QuantizedLinear {
 public:
  explicit DequantizedLinear(const QuantizedLinear& source) : source_(source) {
    module_ = source.module();
    scheme_ = DequantizedScheme(source.n(), source.k());
    n_ = source.n();
    k_ = source.k();
    stored_scale_dtype_ = source.stored_scale_dtype();
    source_tensors_ = source.source_tensors();
    source_bytes_ = source.source_bytes();
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    return Fill(n0, rows, 1.0F, out);
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    return Fill(n0, rows, uint8_t{0}, out);
  }
  Result<uint64_t> CountStrayBits() const override { return source_.CountStrayBits(); }

 private:
  template <typename T>
  Status Fill(uint64_t n0, uint64_t rows, T value, std::span<T> out) const {
    Status status = CheckRows(n0, rows, out.size());
    if (status.ok()) std::ranges::fill(out, value);
    return status;
  }

  const QuantizedLinear& source_;
};

Status DequantizedLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok()) return status;
  // Whole rows, because act-order scatters the columns. Buffers of a thread are kept: panels come
  // by the million.
  thread_local DequantizeBuffers buffers;
  thread_local std::vector<float> weights;
  weights.resize(range.rows * k_);
  status = DequantizeRows(source_, range.n0, range.rows, buffers, weights);
  if (!status.ok()) return status;
  std::byte* to = out.data();
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t col = 0; col < range.cols; ++col) {
      const float weight = weights[row * k_ + range.k0 + col];
      const uint16_t bits = F32ToBF16(weight);
      if (!std::isfinite(BF16ToF32(bits))) {
        return Unsupported(fmt::format("module {}: weight [{}, {}]", module_, range.n0 + row,
                                       range.k0 + col),
                           "BF16 cannot hold it: it would become infinite")
            .Found(fmt::format("{}", weight));
      }
      std::memcpy(to, &bits, sizeof bits);
      to += sizeof bits;
    }
  }
  return {};
}

}  // namespace

Scheme DequantizedScheme(uint64_t n, uint64_t k) {
  return {.code = CodeType::kBF16,
          .bits = 16,
          .granularity = Granularity::kTensor,
          .group_size = k,
          .scale_rows = n,
          .symmetric = true,
          .activations = {}};
}

std::unique_ptr<QuantizedLinear> Dequantized(const QuantizedLinear& source) {
  return std::make_unique<DequantizedLinear>(source);
}

}  // namespace prepack
