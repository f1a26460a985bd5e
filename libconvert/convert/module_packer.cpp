#include "convert/module_packer.h"

#include <fmt/format.h>

#include <algorithm>

namespace prepack {

uint64_t ScaleRows(const Layout& layout, const PackRequest& request) {
  constexpr uint64_t kBufferBytes = 1 << 20;
  const uint64_t multiple = layout.rows_multiple;
  const uint64_t rows = kBufferBytes / sizeof(float) / request.groups();
  return std::max(multiple, rows / multiple * multiple);
}

ModulePacker::ModulePacker(const ModulePlan& module, const PackedModuleOutput& output,
                           std::vector<SafetensorsWriter>& writers, Isa isa)
    : module_(module),
      output_(output),
      writers_(writers),
      isa_(isa),
      panel_(PanelShapeFor(*module.linear, module.chosen->rows_multiple)),
      scale_rows_(ScaleRows(*module.chosen, module.request)) {}

Status ModulePacker::PackCodes(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  const Placement placement = module_.chosen->place(module_.request, PartRole::kWeight, n0, rows);
  buffers.packed.resize(placement.bytes());
  const uint64_t k = module_.linear->k();
  for (uint64_t k0 = 0; k0 < k; k0 += panel_.cols) {
    const PanelRange range{.n0 = n0, .rows = rows, .k0 = k0, .cols = std::min(panel_.cols, k - k0)};
    buffers.panel.resize(PanelBytes(module_.linear->scheme().code, range));
    Status status = module_.linear->ReadCodes(range, buffers.panel);
    if (!status.ok()) return status;
    module_.chosen->pack_codes(module_.request, isa_, {.rows = rows, .k0 = k0, .cols = range.cols},
                               buffers.panel, buffers.packed);
  }
  return WritePart(PartRole::kWeight, placement, buffers.packed);
}

Status ModulePacker::PackScales(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  buffers.scales.resize(rows * module_.linear->groups());
  Status status = module_.linear->ReadScales(n0, rows, buffers.scales);
  if (!status.ok()) return status;

  const Placement placement = module_.chosen->place(module_.request, PartRole::kScale, n0, rows);
  buffers.packed.resize(placement.bytes());
  status = module_.chosen->pack_scales(module_.request, rows, buffers.scales, buffers.packed);
  if (!status.ok()) {
    return std::move(status).In(
        fmt::format("module {}: output channels from {}", module_.linear->module(), n0));
  }
  status = WritePart(PartRole::kScale, placement, buffers.packed);
  return status.ok() ? PackZeroPoints(n0, rows, buffers) : status;
}

Status ModulePacker::PackZeroPoints(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  // Read even where the layout stores none: the reader then checks that a symmetric checkpoint
  // with left-over zero points really is symmetric.
  buffers.zero_points.resize(rows * module_.linear->groups());
  Status status = module_.linear->ReadZeroPoints(n0, rows, buffers.zero_points);
  if (!status.ok() || !HasPart(PartRole::kZeroPoint)) return status;

  const Placement placement =
      module_.chosen->place(module_.request, PartRole::kZeroPoint, n0, rows);
  buffers.packed.resize(placement.bytes());
  module_.chosen->pack_zero_points(module_.request, rows, buffers.zero_points, buffers.packed);
  return WritePart(PartRole::kZeroPoint, placement, buffers.packed);
}

Status ModulePacker::WritePart(PartRole role, const Placement& placement,
                               std::span<const std::byte> packed) const {
  for (size_t i = 0; i < module_.parts.size(); ++i) {
    if (module_.parts[i].role != role) continue;
    const OutputSlot slot = output_.slots[i];
    SafetensorsWriter& writer = writers_[slot.shard];
    if (placement.runs == 1 || placement.stride == placement.run_bytes) {
      return writer.Write(slot.index, placement.offset, packed);
    }
    for (uint64_t run = 0; run < placement.runs; ++run) {
      Status status = writer.Write(slot.index, placement.offset + run * placement.stride,
                                   packed.subspan(run * placement.run_bytes, placement.run_bytes));
      if (!status.ok()) return status;
    }
  }
  return {};
}

bool ModulePacker::HasPart(PartRole role) const {
  return std::ranges::any_of(module_.parts,
                             [role](const PartSpec& part) { return part.role == role; });
}

}  // namespace prepack
