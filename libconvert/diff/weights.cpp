#include "diff/weights.h"

#include <algorithm>

#include "formats/stored_linear.h"

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
  const Result<SharedOrder> read = linear_->KOrder();
  if (!read.ok()) return read.status();
  const InputOrder& order = **read;
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
  Status status = linear_->ReadCodes(range, codes);
  if (status.ok()) status = linear_->ReadScales(n, 1, scales);
  if (status.ok()) status = linear_->ReadZeroPoints(n, 1, zero_points);
  if (!status.ok()) return status;
  const uint64_t group = at / scheme.group_size;
  StoredWeight weight{.code = PanelCode(scheme.code, codes, range.cols, 0, at - first),
                      .zero_point = zero_points[group],
                      .scale = scales[group]};
  if (scheme.code != CodeType::kF8E4M3) {
    weight.step = static_cast<int>(CodeValues(scheme.code)[weight.code]) - weight.zero_point;
  }
  return std::optional(weight);
}

bool IsFloatMatrix(const StoredTensor& tensor) {
  const bool is_float =
      tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kF32;
  return is_float && tensor.shape.size() == 2;
}

}  // namespace prepack
