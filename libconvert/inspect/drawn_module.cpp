#include "inspect/drawn_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "inspect/packed_places.h"
#include "inspect/shown_module.h"

namespace prepack {
namespace {

// Fills cells from the weights that `near` gives for a byte. Neighbouring bytes mostly have the
// same.
template <typename Near, typename BitOf>
void FillFrom(const Near& near, const BitOf& bit_of, DrawnModule& drawn) {
  const uint64_t bytes = drawn.cells.size() * drawn.cell_bits / 8;
  PanelRange last;
  for (uint64_t byte = 0; byte < bytes; ++byte) {
    const PanelRange range = near(byte);
    if (range == last) continue;
    last = range;
    FillCells(drawn.cell_bits, 0, range, bit_of, drawn.cells);
  }
}

DrawnModule DrawStored(const OpenedFolder& folder, const QuantizedLinear& linear, uint64_t bytes) {
  const SourcePlaces& places = *linear.places();
  const StoredTensor& tensor = *folder.checkpoint->Find(places.WhereCode(0, 0).front().tensor);
  const uint32_t bits = linear.scheme().bits;
  DrawnModule drawn{.path = folder.path.string(),
                    .form = folder.model->format,
                    .module = linear.module(),
                    .tensor = tensor.name,
                    .first = places.WhereCode(0, 0).front().bit / 8,
                    .cell_bits = 8 % bits == 0 ? bits : 8,
                    .cells = {}};
  if (places.WhereCode(0, 0).front().bits == 8) drawn.cell_bits = 8;  // codes in bytes
  const uint64_t first = drawn.first;
  drawn.cells.resize(std::min(bytes, tensor.bytes - first) * 8 / drawn.cell_bits);
  FillFrom(
      [&](uint64_t byte) {
        PanelRange near = places.CodesNear(first + byte);
        near.rows = std::min(near.rows, linear.n() - std::min(near.n0, linear.n()));
        near.cols = std::min(near.cols, linear.k() - std::min(near.k0, linear.k()));
        return near;
      },
      [&](uint64_t n, uint64_t k) { return places.WhereCode(n, k).front().bit - 8 * first; },
      drawn);
  return drawn;
}

Result<DrawnModule> DrawPacked(const OpenedFolder& folder, const PackedModule& packed,
                               uint64_t bytes) {
  const Layout& layout = packed.layout();
  const PackRequest& request = packed.request();
  const PartSpec& weight = *FindPart(packed.parts(), PartRole::kWeight);
  Result<std::vector<uint32_t>> order = ReadInputOrder(packed);
  if (!order.ok()) return order.status();
  DrawnModule drawn{.path = folder.path.string(),
                    .form = std::string(layout.id),
                    .module = packed.name(),
                    .tensor = fmt::format("{}.{}", packed.name(), weight.name),
                    .cell_bits = WeightCellBits(request),
                    .cells = {}};
  const uint64_t all = TensorBytes(weight.dtype, weight.shape).value();
  drawn.cells.resize(std::min(bytes, all) * 8 / drawn.cell_bits);
  FillFrom([&](uint64_t byte) { return PackedCodesNear(layout, request, byte); },
           [&](uint64_t n, uint64_t j) { return layout.weight_bit(request, n, j); }, drawn);
  for (WeightCell& cell : drawn.cells) {
    if (cell && !order->empty()) cell->k = (*order)[cell->k];
  }
  return drawn;
}

}  // namespace

Result<DrawnModule> DrawModule(const OpenedFolder& folder, std::string_view module,
                               uint64_t bytes) {
  const Result<ShownModule> shown = FindShown(folder, module);
  if (!shown.ok()) return shown.status();
  if (shown->linear != nullptr) return DrawStored(folder, *shown->linear, bytes);
  return DrawPacked(folder, *shown->packed, bytes);
}

}  // namespace prepack
