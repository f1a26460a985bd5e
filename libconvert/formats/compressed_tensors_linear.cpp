#include "formats/compressed_tensors_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "base/float_convert.h"

namespace prepack {

namespace {

constexpr uint64_t kCodesPerWord = 8;
constexpr uint64_t kWordBytes = 4;

// Bytes of a stored row of codes: whole words.
uint64_t StoredRowBytes(uint64_t k) {
  return CeilDiv(k, kCodesPerWord) * kWordBytes;
}

// Little-endian, whatever the machine.
uint32_t LoadLittle(const std::byte* bytes, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= std::to_integer<uint32_t>(bytes[i]) << (8 * i);
  return value;
}

float LoadScale(const std::byte* bytes, DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return BF16ToF32(static_cast<uint16_t>(LoadLittle(bytes, 2)));
    case DType::kF16:
      return F16ToF32(static_cast<uint16_t>(LoadLittle(bytes, 2)));
    default:
      return std::bit_cast<float>(LoadLittle(bytes, 4));
  }
}

}  // namespace

CompressedTensorsLinear::CompressedTensorsLinear(const Checkpoint& checkpoint,
                                                 const CtPackedModule& parts)
    : checkpoint_(checkpoint),
      packed_(*parts.packed),
      scale_(*parts.scale),
      zero_point_(parts.zero_point),
      zero_points_(parts.zero_points) {
  module_ = parts.module;
  scheme_ = parts.scheme;
  n_ = parts.n;
  k_ = parts.k;
  stored_scale_dtype_ = scale_.dtype;
  const auto add = [&](const StoredTensor& tensor) {
    source_tensors_.push_back(tensor.name);
    source_bytes_ += tensor.bytes;
  };
  add(packed_);
  add(scale_);
  if (zero_point_ != nullptr) add(*zero_point_);
  for (const StoredTensor* tensor : parts.side_tensors) add(*tensor);
}

Status CompressedTensorsLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  const bool inside = range.n0 <= n_ && range.rows <= n_ - range.n0 && range.k0 <= k_ &&
                      range.cols <= k_ - range.k0;
  const bool even = range.k0 % 2 == 0 && (range.cols % 2 == 0 || range.k0 + range.cols == k_);
  if (!inside || !even || out.size() != PanelBytes(scheme_.code, range)) {
    return Usage(module_, "the panel does not fit the module")
        .Found(fmt::format("channels {}+{}, inputs {}+{}, {} bytes", range.n0, range.rows, range.k0,
                           range.cols, out.size()))
        .Expected(fmt::format("within [{}, {}], at even inputs", n_, k_));
  }
  const uint64_t stored = StoredRowBytes(k_);
  const size_t wanted = PanelRowBytes(scheme_.code, range.cols);
  if (wanted == stored) {
    Status status = checkpoint_.Read(packed_, range.n0 * stored, out);
    if (!status.ok()) return status;
  } else {
    for (uint64_t row = 0; row < range.rows; ++row) {
      const uint64_t offset = (range.n0 + row) * stored + range.k0 / 2;
      Status status = checkpoint_.Read(packed_, offset, out.subspan(row * wanted, wanted));
      if (!status.ok()) return status;
    }
  }
  if (range.cols % 2 != 0) {
    // The high half of a row's last byte is padding; what the file holds there is not ours to show.
    for (uint64_t row = 0; row < range.rows; ++row) out[(row + 1) * wanted - 1] &= std::byte{0x0F};
  }
  return {};
}

Status CompressedTensorsLinear::CheckRows(uint64_t n0, uint64_t rows, size_t out_size) const {
  if (n0 <= n_ && rows <= n_ - n0 && out_size == rows * groups()) return {};
  return Usage(module_, "the rows do not fit the module")
      .Found(fmt::format("channels {}+{}, {} values", n0, rows, out_size))
      .Expected(fmt::format("within {} channels of {} groups", n_, groups()));
}

Status CompressedTensorsLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok()) return status;
  const size_t bytes_each = DTypeBits(scale_.dtype) / 8;
  std::vector<std::byte> stored(out.size() * bytes_each);
  status = checkpoint_.Read(scale_, n0 * groups() * bytes_each, stored);
  if (!status.ok()) return status;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = LoadScale(stored.data() + i * bytes_each, scale_.dtype);
    if (std::isfinite(out[i]) && out[i] != 0.0F) continue;
    const uint64_t n = n0 + i / groups();
    const uint64_t group = i % groups();
    if (!std::isfinite(out[i])) {
      return Malformed(checkpoint_.Where(scale_),
                       fmt::format("scale [{}, {}] is not a finite number", n, group))
          .Found(std::isnan(out[i]) ? "NaN" : "infinity")
          .Hint("Quantize the model again: this layer computes garbage in every runtime");
    }
    status = CheckZeroScale(n, group);
    if (!status.ok()) return status;
  }
  if (scheme_.symmetric && zero_point_ != nullptr) {
    std::vector<uint8_t> zero_points(out.size());
    return ReadZeroPoints(n0, rows, zero_points);
  }
  return {};
}

Status CompressedTensorsLinear::CheckZeroScale(uint64_t n, uint64_t group) const {
  std::vector<uint8_t> zero_points(groups());
  Status status = ReadZeroPoints(n, 1, zero_points);
  if (!status.ok()) return status;
  const uint8_t zero_point = zero_points[group];
  const uint64_t end = (group + 1) * scheme_.group_size;
  std::array<std::byte, 4096> bytes{};
  for (uint64_t k = group * scheme_.group_size; k < end;) {
    // A group of odd size can begin in the high half of a byte.
    const uint64_t first = k - k % 2;
    const uint64_t last = std::min<uint64_t>(end, first + 2 * bytes.size());
    const auto chunk = std::span(bytes).first(PanelRowBytes(scheme_.code, last - first));
    status = checkpoint_.Read(packed_, n * StoredRowBytes(k_) + first / 2, chunk);
    if (!status.ok()) return status;
    for (; k < last; ++k) {
      const uint8_t code = PanelCode(scheme_.code, chunk, last - first, 0, k - first);
      if (code == zero_point) continue;
      return Malformed(checkpoint_.Where(scale_),
                       fmt::format("scale [{}, {}] is zero, but the group has weights", n, group))
          .Found(fmt::format("code {} at [{}, {}]", code, n, k))
          .Expected(fmt::format("the zero point {} throughout", zero_point));
    }
  }
  return {};
}

Status CompressedTensorsLinear::ReadZeroPoints(uint64_t n0, uint64_t rows,
                                               std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok()) return status;
  const uint8_t symmetric = ZeroOfSymmetric(scheme_);
  switch (zero_points_) {
    case CtZeroPoints::kNone:
      std::fill(out.begin(), out.end(), symmetric);
      return {};
    case CtZeroPoints::kPacked:
      status = ReadPackedZeroPoints(n0, rows, out);
      break;
    case CtZeroPoints::kUnpacked:
      status = ReadUnpackedZeroPoints(n0, out);
      break;
  }
  if (!status.ok() || !scheme_.symmetric) return status;
  const auto odd = std::find_if(out.begin(), out.end(), [&](uint8_t z) { return z != symmetric; });
  if (odd == out.end()) return {};
  const auto index = static_cast<uint64_t>(odd - out.begin());
  return Malformed(checkpoint_.Where(*zero_point_),
                   "the scheme is symmetric, but a zero point is not zero")
      .Found(fmt::format("{} at [{}, {}]", static_cast<int>(*odd) - symmetric,
                         n0 + index / groups(), index % groups()))
      .Hint("Either the config or the tensor is wrong");
}

Status CompressedTensorsLinear::ReadPackedZeroPoints(uint64_t n0, uint64_t rows,
                                                     std::span<uint8_t> out) const {
  const uint64_t first = n0 / kCodesPerWord;
  const uint64_t last = CeilDiv(n0 + rows, kCodesPerWord);
  const uint64_t row_bytes = groups() * kWordBytes;
  std::vector<std::byte> words((last - first) * row_bytes);
  Status status = checkpoint_.Read(*zero_point_, first * row_bytes, words);
  if (!status.ok()) return status;
  for (uint64_t n = n0; n < n0 + rows; ++n) {
    // Word [n / 8, g], bits 4·(n mod 8): the half n mod 2 of its byte (n mod 8) / 2.
    const std::byte* row =
        words.data() + (n / kCodesPerWord - first) * row_bytes + n % kCodesPerWord / 2;
    const unsigned shift = n % 2 == 0 ? 0 : 4;
    for (uint64_t g = 0; g < groups(); ++g) {
      const auto byte = std::to_integer<unsigned>(row[g * kWordBytes]);
      out[(n - n0) * groups() + g] = static_cast<uint8_t>((byte >> shift) & 15U);
    }
  }
  return {};
}

Status CompressedTensorsLinear::ReadUnpackedZeroPoints(uint64_t n0, std::span<uint8_t> out) const {
  Status status = checkpoint_.Read(*zero_point_, n0 * groups(), std::as_writable_bytes(out));
  if (!status.ok()) return status;
  for (size_t i = 0; i < out.size(); ++i) {
    const int value = (out[i] ^ 0x80) - 0x80;  // the byte as a signed one
    if (value < -8 || value > 7) {
      return Malformed(checkpoint_.Where(*zero_point_), "a zero point is outside 4 bits")
          .Found(fmt::format("{} at [{}, {}]", value, n0 + i / groups(), i % groups()))
          .Expected("-8 to 7");
    }
    out[i] = static_cast<uint8_t>(value + 8);
  }
  return {};
}

}  // namespace prepack
