#include "verify/unpacked_weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/float_convert.h"
#include "canonical/dequantize.h"
#include "canonical/panel.h"

namespace prepack {
namespace {

// One row of codes as numbers, zero points not subtracted.
void FillValues(CodeType code, std::span<const std::byte> row, std::span<float> values) {
  if (code == CodeType::kBF16) {
    for (size_t k = 0; k < values.size(); ++k) {
      uint16_t bits = 0;
      std::memcpy(&bits, &row[k * sizeof bits], sizeof bits);
      values[k] = BF16ToF32(bits);
    }
  } else if (IsNibble(code)) {
    for (size_t pair = 0; pair < values.size() / 2; ++pair) {
      const auto byte = std::to_integer<int>(row[pair]);
      values[2 * pair] = static_cast<float>(byte & 15);
      values[2 * pair + 1] = static_cast<float>(byte >> 4);
    }
  } else {
    const std::array<float, 256>& table = CodeValues(code);
    for (size_t k = 0; k < values.size(); ++k) values[k] = table[std::to_integer<uint8_t>(row[k])];
  }
}

}  // namespace

Status UnpackWeights(const PackedModule& packed, WeightRounding rounding, const InputSlab& slab,
                     uint64_t n0, uint64_t channels, UnpackBuffers& buffers) {
  const PackRequest& request = packed.request();
  const CodeType code = request.scheme.code;
  const uint64_t k = slab.inputs;
  const uint64_t groups = request.groups();
  buffers.codes.resize(PanelBytes(code, {.n0 = n0, .rows = channels, .k0 = slab.k0, .cols = k}));
  buffers.scales.resize(channels * groups);
  buffers.zero_points.resize(channels * groups);
  Status status = packed.ReadCodes(n0, channels, slab, buffers.packed, buffers.codes);
  if (status.ok()) status = packed.ReadScales(n0, channels, buffers.packed, buffers.scales);
  if (status.ok()) {
    status = packed.ReadZeroPoints(n0, channels, buffers.packed, buffers.zero_points);
  }
  if (!status.ok()) return status;

  DecodedRows& decoded = buffers.decoded;
  decoded.steps.resize(channels * k);
  decoded.scales.assign(buffers.scales.begin(), buffers.scales.end());
  decoded.group_of.resize(k);
  for (uint64_t j = 0; j < k; ++j) {
    decoded.group_of[j] = (slab.k0 + j) / request.scheme.group_size;
  }
  for (uint64_t row = 0; row < channels; ++row) {
    const std::span steps = std::span(decoded.steps).subspan(row * k, k);
    FillValues(
        code,
        std::span(buffers.codes).subspan(row * PanelRowBytes(code, k), PanelRowBytes(code, k)),
        steps);
    const uint8_t* zero_points = &buffers.zero_points[row * groups];
    for (uint64_t j = 0; j < k;) {
      const uint64_t group = decoded.group_of[j];
      const uint64_t end = std::min((group + 1) * request.scheme.group_size - slab.k0, k);
      const auto zero_point = static_cast<float>(zero_points[group]);
      for (; j < end; ++j) steps[j] -= zero_point;
    }
  }
  buffers.weights.resize(channels * k);
  FillKernelWeights(rounding, packed.layout(), request, decoded, std::span(buffers.weights));
  return {};
}

}  // namespace prepack
