#include "formats/stored_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float_convert.h"
#include "base/process_isa.h"
#include "base/scratch.h"
#include "formats/finding.h"
#include "kernels/unit_transpose.h"

namespace prepack {

namespace {

// Little-endian 16-bit numbers, widened by `widen`.
template <typename Widen>
void WidenHalves(std::span<const std::byte> stored, std::span<float> out, Widen widen) {
  static_assert(std::endian::native == std::endian::little);
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, stored.data() + i * sizeof half, sizeof half);
    out[i] = widen(half);
  }
}

bool IsZeroWeight(CodeType code, uint8_t bits, uint8_t zero_point) {
  return code == CodeType::kF8E4M3 ? (bits & 0x7FU) == 0 : bits == zero_point;
}

}  // namespace

void StoredLinear::AddSource(const StoredTensor& tensor, uint64_t sharers) {
  source_tensors_.push_back(tensor.name);
  source_bytes_ += tensor.bytes / sharers;
}

Status OrderHasChanged(std::string_view where) {
  return Malformed(where, "the order of the input channels changed while it was in use")
      .Hint("Leave the source alone until prepack has ended");
}

namespace {

// Without a branch, so that it is done by vectors.
bool AllFiniteAndNotZero(std::span<const float> scales) {
  unsigned bad = 0;
  for (const float scale : scales) {
    const float size = std::abs(scale);  // neither comparison holds for NaN
    bad |= static_cast<unsigned>(!(size > 0.0F && size <= std::numeric_limits<float>::max()));
  }
  return bad == 0;
}

}  // namespace

Status StoredLinear::CheckScales(const StoredTensor& tensor, uint64_t n0, uint64_t rows,
                                 std::span<const float> scales) const {
  if (AllFiniteAndNotZero(scales)) return {};
  for (size_t i = 0; i < rows * groups(); ++i) {
    if (std::isfinite(scales[i]) && scales[i] != 0.0F) continue;
    const uint64_t n = n0 + i / groups();
    const uint64_t group = i % groups();
    if (!std::isfinite(scales[i])) {
      return Malformed(
                 checkpoint_.Where(tensor),
                 fmt::format("the scale of channel {}, group {} is not a finite number", n, group))
          .Found(std::isnan(scales[i]) ? "NaN" : "infinity")
          .Hint("Quantize the model again: this layer computes garbage in every runtime")
          .Id(FindingId("scale-not-finite"));
    }
    if (accepts_zero_scales_) continue;  // zero times any code is zero
    Status status = CheckZeroScale(tensor, n, group);
    if (!status.ok()) return status;
  }
  return {};
}

Status StoredLinear::CheckZeroScale(const StoredTensor& tensor, uint64_t n, uint64_t group) const {
  std::vector<uint8_t> zero_points(groups());
  Status status = ReadZeroPoints(n, 1, zero_points);
  if (!status.ok()) return status;
  const uint8_t zero_point = zero_points[group];
  const uint64_t begin = group * scheme_.group_size;
  const uint64_t end = std::min(k_, begin + scheme_.group_size);
  // A group of odd size can begin or end in the middle of a byte.
  const uint64_t first = begin - begin % 2;
  const uint64_t last = std::min(k_, end + end % 2);
  std::vector<std::byte> codes(PanelRowBytes(scheme_.code, last - first));
  status = ReadCodes({.n0 = n, .rows = 1, .k0 = first, .cols = last - first}, codes);
  if (!status.ok()) return status;
  for (uint64_t k = begin; k < end; ++k) {
    const uint8_t code = PanelCode(scheme_.code, codes, last - first, 0, k - first);
    if (IsZeroWeight(scheme_.code, code, zero_point)) continue;
    return Malformed(checkpoint_.Where(tensor),
                     fmt::format("the scale of channel {}, group {} is zero, but the group has "
                                 "weights",
                                 n, group))
        .Found(fmt::format("code {} at [{}, {}]", code, n, k))
        .Expected(fmt::format("the zero point {} throughout", zero_point))
        .Hint("Runtimes compute zeros with them; --accept scale-zero packs them so")
        .Id(FindingId("scale-zero"));
  }
  return {};
}

StoredBits WhereElement(const StoredTensor& tensor, uint64_t index) {
  const auto bits = static_cast<uint32_t>(DTypeBits(tensor.dtype));
  return {{.tensor = tensor.name, .bit = index * bits, .bits = bits}};
}

Status ReadFloats(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t first,
                  std::span<float> out) {
  const size_t each = DTypeBits(tensor.dtype) / 8;
  Scratch<std::byte> stored(out.size() * each);
  Status status = checkpoint.Read(tensor, first * each, stored);
  if (!status.ok()) return status;
  switch (tensor.dtype) {
    case DType::kBF16:
      WidenHalves(stored, out, [](uint16_t bits) { return BF16ToF32(bits); });
      return {};
    case DType::kF16:
      WidenHalves(stored, out, [](uint16_t bits) { return F16ToF32(bits); });
      return {};
    case DType::kF32:
      std::memcpy(out.data(), stored.data(), stored.size());
      return {};
    default:
      return Usage(checkpoint.Where(tensor), "not a tensor of floats that are read")
          .Found(DTypeName(tensor.dtype));
  }
}

Status ReadFloatColumns(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t n,
                        uint64_t groups, uint64_t n0, uint64_t rows, std::span<float> out) {
  constexpr uint64_t kGroups = 8;  // half a cache line of every row at a time
  Scratch<float> columns(kGroups * rows);
  for (uint64_t g0 = 0; g0 < groups; g0 += kGroups) {
    const uint64_t count = std::min(kGroups, groups - g0);
    for (uint64_t g = 0; g < count; ++g) {
      Status status = ReadFloats(checkpoint, tensor, (g0 + g) * n + n0,
                                 std::span(columns).subspan(g * rows, rows));
      if (!status.ok()) return status;
    }
    TransposeUnitsFor(ProcessIsa(), sizeof(float))(
        std::as_bytes(std::span(columns)).data(), rows * sizeof(float), count, rows,
        std::as_writable_bytes(out).subspan(g0 * sizeof(float)).data(), groups * sizeof(float));
  }
  return {};
}

}  // namespace prepack
