// A small window of a module's weights as numbers, codes or bytes.

#include "prepack/inspect/weight_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/inspect/packed_places.h"
#include "prepack/inspect/weight_row.h"
#include "prepack/model/panel.h"

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
    PREPACK_TRY_ASSIGN(const QuantizedLinear* linear, FindSourceModule(folder, module));
    return ShownModule{
        .linear = linear, .n = linear->n(), .k = linear->k(), .form = folder.model->format};
  }
  PREPACK_TRY_ASSIGN(const PackedModuleName name, FindPackedModule(folder, module));
  PREPACK_TRY_ASSIGN(PackedModule packed,
                     PackedModule::Open(*folder.packed, *name.name, *name.record));
  return ShownModule{.packed = std::move(packed),
                     .first = name.channels.first,
                     .n = name.channels.n,
                     .k = name.record->k,
                     .form = name.record->layout};
}

namespace {

// The byte that holds the first bit of a code.
Result<uint8_t> CodeByte(const OpenedFolder& folder, const ShownModule& module,
                         const WeightRow& row, uint64_t n, uint64_t k) {
  std::array<std::byte, 1> byte{};
  Status status;
  if (module.linear != nullptr) {
    const StoredBits where = module.linear->places()->WhereCode(n, k);
    const StoredTensor& tensor = *folder.checkpoint->Find(where.front().tensor);
    status = folder.checkpoint->Read(tensor, where.front().bit / 8, byte);
  } else {
    const PartBits where = WherePackedCode(module.packed->layout(), module.packed->request(),
                                           module.first + n, row.positions[k]);
    status = module.packed->ReadPart(PartRole::kWeight, where.bit / 8, byte);
  }
  if (!status.ok()) return status;
  return std::to_integer<uint8_t>(byte.front());
}

Result<double> ValueOf(const OpenedFolder& folder, const ShownModule& module, const WeightRow& row,
                       uint64_t n, uint64_t k, ValueKind kind) {
  switch (kind) {
    case ValueKind::kDecoded:
      break;
    case ValueKind::kCodes:
      return static_cast<double>(CodeNumber(row.code, row.codes[k]));
    case ValueKind::kBytes: {
      PREPACK_TRY_ASSIGN(const uint8_t byte, CodeByte(folder, module, row, n, k));
      return static_cast<double>(byte);
    }
  }
  return static_cast<double>(row.values[k]);
}

}  // namespace

std::string_view ValueKindName(ValueKind kind) {
  switch (kind) {
    case ValueKind::kDecoded:
      return "decoded";
    case ValueKind::kCodes:
      return "codes";
    case ValueKind::kBytes:
      return "bytes";
  }
  return "";
}

Result<WeightValues> ReadWeightValues(const OpenedFolder& folder, std::string_view module,
                                      const PanelRange& range, ValueKind kind) {
  PREPACK_TRY_ASSIGN(const ShownModule shown, FindShown(folder, module));
  if (range.n0 >= shown.n || range.k0 >= shown.k || range.rows == 0 || range.cols == 0) {
    return Usage(module, "there are no weights in these rows and columns")
        .Found(fmt::format("rows from {}, columns from {}", range.n0, range.k0))
        .Expected(fmt::format("within [{}, {}]", shown.n, shown.k));
  }
  WeightValues found{.module = std::string(module),
                     .form = shown.form,
                     .range = range,
                     .kind = kind,
                     .values = {}};
  found.range.rows = std::min(range.rows, shown.n - range.n0);
  found.range.cols = std::min(range.cols, shown.k - range.k0);
  if (CheckedMul(found.range.rows, found.range.cols).value_or(kMostValues + 1) > kMostValues) {
    return Usage(module, "too many weights to show")
        .Found(fmt::format("{} rows, {} columns", found.range.rows, found.range.cols))
        .Expected(fmt::format("at most {} in all", kMostValues));
  }
  for (uint64_t n = range.n0; n < range.n0 + found.range.rows; ++n) {
    PREPACK_TRY_ASSIGN(const WeightRow row, shown.Row(n));
    for (uint64_t k = range.k0; k < range.k0 + found.range.cols; ++k) {
      PREPACK_TRY_ASSIGN(const double value, ValueOf(folder, shown, row, n, k, kind));
      found.values.push_back(value);
    }
  }
  return found;
}

}  // namespace prepack
