#include "prepack/layouts/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace prepack {

uint64_t PlacedBytes(const Placement& placement) {
  uint64_t bytes = 0;
  for (const Runs& runs : placement) bytes += runs.bytes * runs.count;
  return bytes;
}

Placement PlaceChannels(const PackRequest& request, const PanelRange& tile) {
  const size_t row_bytes = PanelRowBytes(request.scheme.code, request.k);
  return {{.offset = tile.n0 * row_bytes, .bytes = tile.rows * row_bytes}};
}

void AppendCommonParts(const PackRequest& request, DType bias_dtype, std::vector<PartSpec>& parts) {
  if (request.bias_dtype) {
    parts.push_back({.role = PartRole::kBias,
                     .name = "bias",
                     .dtype = bias_dtype,
                     .shape = {request.n},
                     .by_outputs = Division::Along(0, 1),
                     .by_inputs = Division::Whole()});
  }
  if (request.reordered) {
    parts.push_back({.role = PartRole::kInputOrder,
                     .name = "input_order",
                     .dtype = DType::kI32,
                     .shape = {request.k},
                     .by_outputs = Division::Whole()});
  }
}

const PartSpec* FindPart(const std::vector<PartSpec>& parts, PartRole role) {
  const auto it = std::ranges::find(parts, role, &PartSpec::role);
  return it == parts.end() ? nullptr : &*it;
}

uint64_t StripRows(const Layout& layout, const PackRequest& request) {
  constexpr uint64_t kBufferBytes = 1 << 20;
  const uint64_t multiple = layout.cut(request).strip_rows;
  const uint64_t rows = kBufferBytes / sizeof(float) / request.groups();
  return std::max(multiple, rows / multiple * multiple);
}

std::string ScaleRounding(const Layout& layout, const PackRequest& request) {
  if (layout.scale_form == nullptr) return "none";
  const DType stored = request.stored_scale_dtype;
  const DType value = layout.scale_form(request).value;
  if (stored == value || value == DType::kF32) return "none";
  return fmt::format("{} to {}, nearest even", DTypeName(stored), DTypeName(value));
}

Status ReadZeroPointsForCodes(const Layout& layout, const QuantizedLinear& weights,
                              const PanelRange& tile, std::vector<uint8_t>& zero_points) {
  zero_points.clear();
  if (!layout.codes_need_zero_points) return {};
  zero_points.resize(tile.rows * weights.groups());
  return weights.ReadZeroPoints(tile.n0, tile.rows, zero_points);
}

}  // namespace prepack
