#include "inspect/shown_module.h"

#include <algorithm>
#include <utility>

#include "base/process_isa.h"
#include "canonical/row_stripes.h"
#include "inspect/packed_rows.h"

namespace prepack {

uint64_t ShownModule::PanelRows() const {
  const uint64_t rows = StripePanelRows(k);
  if (linear != nullptr) return rows;
  const uint64_t multiple = packed->layout().cut(packed->request()).rows;
  return std::max(multiple, rows / multiple * multiple);
}

Status ShownModule::ReadScales(uint64_t n0, uint64_t rows, std::vector<float>& scales) const {
  if (linear == nullptr) return ReadPackedScales(*packed, first + n0, rows, scales);
  scales.resize(rows * groups());
  return linear->ReadScales(n0, rows, scales);
}

Status ShownModule::ReadRows(uint64_t n0, uint64_t rows, StatisticsBuffers& numbers) const {
  Status status = ReadScales(n0, rows, numbers.scales);
  if (!status.ok()) return status;
  if (linear == nullptr) {
    status = ReadPackedZeroPoints(*packed, first + n0, rows, numbers.zero_points);
    if (status.ok()) status = ReadPackedCodes(*packed, first + n0, rows, numbers.codes);
    return status;
  }
  const PanelRange range{.n0 = n0, .rows = rows, .k0 = 0, .cols = k};
  numbers.zero_points.resize(rows * groups());
  numbers.codes.resize(PanelBytes(scheme().code, range));
  status = linear->ReadZeroPoints(n0, rows, numbers.zero_points);
  if (status.ok()) status = linear->ReadCodes(range, numbers.codes);
  return status;
}

Result<ShownModule> FindShown(const OpenedFolder& folder, std::string_view module) {
  if (!folder.packed) {
    const Result<const QuantizedLinear*> linear = FindSourceModule(folder, module);
    if (!linear.ok()) return linear.status();
    return ShownModule{
        .linear = *linear, .n = (*linear)->n(), .k = (*linear)->k(), .form = folder.model->format};
  }
  const Result<PackedModuleName> name = FindPackedModule(folder, module);
  if (!name.ok()) return name.status();
  Result<PackedModule> packed =
      PackedModule::Open(*folder.packed, *name->name, *name->record, ProcessIsa());
  if (!packed.ok()) return packed.status();
  return ShownModule{.packed = *std::move(packed),
                     .first = name->channels.first,
                     .n = name->channels.n,
                     .k = name->record->k,
                     .form = name->record->layout};
}

}  // namespace prepack
