#include "convert/module_packer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/float_convert.h"
#include "convert/small_parts.h"
#include "layouts/weight_sums.h"

namespace prepack {

Status ReadZeroPointsForCodes(const Layout& layout, const QuantizedLinear& weights,
                              const PanelRange& tile, std::vector<uint8_t>& zero_points) {
  zero_points.clear();
  if (!layout.codes_need_zero_points) return {};
  zero_points.resize(tile.rows * weights.groups());
  return weights.ReadZeroPoints(tile.n0, tile.rows, zero_points);
}

ModulePacker::ModulePacker(const Checkpoint& checkpoint, const ModulePlan& module,
                           const OutputUnit& output, std::vector<SafetensorsWriter>& writers,
                           Isa isa, std::atomic<uint64_t>& rounded_scales)
    : checkpoint_(checkpoint),
      module_(module),
      output_(output),
      writers_(writers),
      isa_(isa),
      shape_(TileShapeFor(module.weights(), module.chosen->cut(module.request))),
      grid_(module.request.n, module.request.k, shape_),
      strip_rows_(StripRows(*module.chosen, module.request)),
      rounded_scales_(rounded_scales) {}

size_t ModulePacker::strips() const {
  return static_cast<size_t>(CeilDiv(module_.request.n, strip_rows_));
}

Status ModulePacker::PackTile(size_t index, PanelBuffers& buffers) const {
  const QuantizedLinear& weights = module_.weights();
  const PanelRange tile = grid_.At(index);
  const Placement placement = module_.chosen->place_weight(module_.request, tile);
  buffers.packed.resize(PlacedBytes(placement));
  Status status = ReadZeroPointsForCodes(*module_.chosen, weights, tile, buffers.zero_points);
  if (!status.ok()) return status;
  status = ForPanels(tile, shape_, [&](const PanelRange& panel) -> Status {
    buffers.panel.resize(PanelBytes(weights.scheme().code, panel));
    Status read = weights.ReadCodes(panel, buffers.panel);
    if (!read.ok()) return read;
    module_.chosen->pack_codes({.request = module_.request,
                                .isa = isa_,
                                .tile = tile,
                                .panel = panel,
                                .zero_points = buffers.zero_points},
                               buffers.panel, buffers.packed);
    return {};
  });
  return status.ok() ? WritePart(PartRole::kWeight, placement, buffers.packed) : status;
}

Status ModulePacker::PackStrip(size_t index, PanelBuffers& buffers) const {
  const uint64_t n0 = index * strip_rows_;
  const uint64_t rows = std::min(strip_rows_, module_.request.n - n0);
  Status status = PackScales(n0, rows, buffers);
  if (status.ok()) status = PackZeroPoints(n0, rows, buffers);
  if (status.ok() && HasPart(PartRole::kWeightSum)) status = PackWeightSums(n0, rows, buffers);
  return status;
}

Status ModulePacker::PackScales(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  buffers.scales.resize(rows * module_.weights().groups());
  Status status = module_.weights().ReadScales(n0, rows, buffers.scales);
  if (!status.ok() || module_.chosen->scale_form == nullptr) return status;

  const Placement placement =
      module_.chosen->place_rows(module_.request, PartRole::kScale, n0, rows);
  buffers.packed.resize(PlacedBytes(placement));
  status = module_.chosen->pack_scales(module_.request, rows, buffers.scales, buffers.packed);
  if (!status.ok()) {
    return std::move(status).In(
        fmt::format("module {}: output channels from {}", module_.linear->module(), n0));
  }
  const DType value = module_.chosen->scale_form(module_.request).value;
  if (value != DType::kF32 && value != module_.weights().stored_scale_dtype()) {
    rounded_scales_ += static_cast<uint64_t>(std::ranges::count_if(
        buffers.scales, [value](float scale) { return RoundTo(value, scale) != scale; }));
  }
  return WritePart(PartRole::kScale, placement, buffers.packed);
}

Status ModulePacker::PackZeroPoints(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  // Read even where the layout stores none: the reader then checks that a symmetric checkpoint
  // with left-over zero points really is symmetric.
  buffers.zero_points.resize(rows * module_.weights().groups());
  Status status = module_.weights().ReadZeroPoints(n0, rows, buffers.zero_points);
  if (!status.ok() || !HasPart(PartRole::kZeroPoint)) return status;

  const Placement placement =
      module_.chosen->place_rows(module_.request, PartRole::kZeroPoint, n0, rows);
  buffers.packed.resize(PlacedBytes(placement));
  module_.chosen->pack_zero_points(module_.request, rows, buffers.zero_points, buffers.packed);
  return WritePart(PartRole::kZeroPoint, placement, buffers.packed);
}

// After PackScales of the same rows.
Status ModulePacker::PackWeightSums(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  buffers.sums.resize(rows);
  Status status = SumSignedCodes(module_.weights(), isa_, n0, rows, buffers.panel, buffers.sums);
  if (!status.ok()) return status;
  buffers.packed.resize(rows * sizeof(float));
  const DType value = module_.chosen->scale_form(module_.request).value;
  PackScaledSums(value, buffers.sums, buffers.scales, buffers.packed);
  return WritePart(PartRole::kWeightSum,
                   {{.offset = n0 * sizeof(float), .bytes = rows * sizeof(float)}}, buffers.packed);
}

Status ModulePacker::PackSmallParts(PanelBuffers& buffers) const {
  for (const PartSpec& part : module_.parts) {
    if (!IsSmallPart(part.role)) continue;
    Status status = SmallPartBytes(checkpoint_, *module_.linear, part, buffers.packed);
    if (!status.ok()) return status;
    status = WritePart(part.role, {{.offset = 0, .bytes = buffers.packed.size()}}, buffers.packed);
    if (!status.ok()) return status;
  }
  return {};
}

Status ModulePacker::WritePart(PartRole role, const Placement& placement,
                               std::span<const std::byte> packed) const {
  const auto part = std::ranges::find(module_.parts, role, &PartSpec::role);
  const OutputSlot slot = output_.slots[static_cast<size_t>(part - module_.parts.begin())];
  SafetensorsWriter& writer = writers_[slot.shard];
  return ForPieces(placement, [&](uint64_t offset, uint64_t bytes) {
    Status status = writer.Write(slot.index, offset, packed.first(bytes));
    packed = packed.subspan(bytes);
    return status;
  });
}

}  // namespace prepack
