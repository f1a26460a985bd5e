#include "inspect/weight_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "base/checked.h"
#include "inspect/packed_places.h"
#include "inspect/shown_module.h"

namespace prepack {
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
      const Result<uint8_t> byte = CodeByte(folder, module, row, n, k);
      if (!byte.ok()) return byte.status();
      return static_cast<double>(*byte);
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
  const Result<ShownModule> shown = FindShown(folder, module);
  if (!shown.ok()) return shown.status();
  if (range.n0 >= shown->n || range.k0 >= shown->k || range.rows == 0 || range.cols == 0) {
    return Usage(module, "no weights in these rows and columns")
        .Found(fmt::format("rows from {}, columns from {}", range.n0, range.k0))
        .Expected(fmt::format("within [{}, {}]", shown->n, shown->k));
  }
  WeightValues found{.module = std::string(module),
                     .form = shown->form,
                     .range = range,
                     .kind = kind,
                     .values = {}};
  found.range.rows = std::min(range.rows, shown->n - range.n0);
  found.range.cols = std::min(range.cols, shown->k - range.k0);
  if (CheckedMul(found.range.rows, found.range.cols).value_or(kMostValues + 1) > kMostValues) {
    return Usage(module, "too many weights to show")
        .Found(fmt::format("{} rows, {} columns", found.range.rows, found.range.cols))
        .Expected(fmt::format("at most {} in all", kMostValues));
  }
  for (uint64_t n = range.n0; n < range.n0 + found.range.rows; ++n) {
    const Result<WeightRow> row = shown->Row(n);
    if (!row.ok()) return row.status();
    for (uint64_t k = range.k0; k < range.k0 + found.range.cols; ++k) {
      const Result<double> value = ValueOf(folder, *shown, *row, n, k, kind);
      if (!value.ok()) return value.status();
      found.values.push_back(*value);
    }
  }
  return found;
}

}  // namespace prepack
