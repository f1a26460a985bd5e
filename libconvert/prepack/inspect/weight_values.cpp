// Rows of a packed module as codes, by the layout's unpack functions.

#include "prepack/inspect/weight_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/inspect/places.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/panel.h"

namespace prepack {

namespace {

// Reads whole strips of `multiple` channels by `read(n0, rows, out)`, a row of which is
// `row_size` elements.
template <typename Element, typename Read>
Status ReadStrips(const PackedModule& packed, uint64_t multiple, uint64_t n0, uint64_t rows,
                  uint64_t row_size, std::vector<Element>& out, const Read& read) {
  const uint64_t first = n0 / multiple * multiple;
  const uint64_t end = std::min(packed.request().n, CeilDiv(n0 + rows, multiple) * multiple);
  out.resize((end - first) * row_size);
  PREPACK_TRY(read(first, end - first, std::span(out)));
  const auto before = static_cast<ptrdiff_t>((n0 - first) * row_size);
  out.erase(out.begin(), out.begin() + before);
  out.resize(rows * row_size);
  return {};
}

}  // namespace

Status ReadPackedCodes(const PackedModule& packed, uint64_t n0, uint64_t rows,
                       std::vector<std::byte>& codes) {
  const PackRequest& request = packed.request();
  PageBuffer buffer;
  return ReadStrips(packed, packed.layout().cut(request).rows, n0, rows,
                    PanelRowBytes(request.scheme.code, request.k), codes,
                    [&](uint64_t first, uint64_t count, std::span<std::byte> out) {
                      const InputSlab all{.k0 = 0, .inputs = request.k};
                      return packed.ReadCodes(first, count, all, buffer, out);
                    });
}

Status ReadPackedScales(const PackedModule& packed, uint64_t n0, uint64_t rows,
                        std::vector<float>& scales) {
  const PackRequest& request = packed.request();
  if (!packed.layout().HasScales()) {
    scales.assign(rows * request.groups(), 1.0F);
    return {};
  }
  PageBuffer buffer;
  return ReadStrips(packed, packed.layout().cut(request).strip_rows, n0, rows, request.groups(),
                    scales, [&](uint64_t first, uint64_t count, std::span<float> out) {
                      return packed.ReadScales(first, count, buffer, out);
                    });
}

Status ReadPackedZeroPoints(const PackedModule& packed, uint64_t n0, uint64_t rows,
                            std::vector<uint8_t>& zero_points) {
  const PackRequest& request = packed.request();
  PageBuffer buffer;
  return ReadStrips(packed, packed.layout().cut(request).strip_rows, n0, rows, request.groups(),
                    zero_points, [&](uint64_t first, uint64_t count, std::span<uint8_t> out) {
                      return packed.ReadZeroPoints(first, count, buffer, out);
                    });
}

namespace {

// The position of each input channel; the natural order if there is no other.
Result<std::vector<uint64_t>> Positions(std::span<const uint32_t> order, uint64_t k) {
  std::vector<uint64_t> positions(k, k);
  if (order.empty()) {
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }
  for (uint64_t j = 0; j < order.size(); ++j) {
    if (order[j] < k) positions[order[j]] = j;
  }
  if (order.size() == k && std::ranges::find(positions, k) == positions.end()) return positions;
  return Malformed("input_order", "not a permutation of the input channels");
}

float Decode(const WeightRow& row, uint64_t k) {
  if (row.code == CodeType::kBF16) return BF16ToF32(row.codes[k]);
  const uint64_t g = row.GroupOf(k);
  const auto zero_point = static_cast<float>(row.zero_points[g]);
  return (CodeValues(row.code)[row.codes[k]] - zero_point) * row.scales[g];
}

// `codes` are those of the row in k_order.
void Fill(std::span<const std::byte> codes, WeightRow& row) {
  const uint64_t k = row.positions.size();
  for (uint64_t channel = 0; channel < k; ++channel) {
    row.codes.push_back(PanelBits(row.code, codes, k, 0, row.positions[channel]));
  }
  for (uint64_t channel = 0; channel < k; ++channel) row.values.push_back(Decode(row, channel));
}

}  // namespace

Result<std::vector<uint32_t>> ReadInputOrder(const PackedModule& packed) {
  PageBuffer bytes;
  PREPACK_TRY(packed.ReadWholePart(PartRole::kInputOrder, bytes));
  std::vector<uint32_t> order(bytes.size() / sizeof(uint32_t));
  if (order.empty()) return order;
  std::memcpy(order.data(), bytes.data(), order.size() * sizeof(uint32_t));
  const Result<std::vector<uint64_t>> positions = Positions(order, packed.request().k);
  if (!positions.ok()) return positions.status();
  return order;
}

Result<WeightRow> ReadWeightRow(const QuantizedLinear& linear, uint64_t n) {
  PREPACK_TRY_ASSIGN(const SharedOrder order, linear.KOrder());
  PREPACK_TRY_ASSIGN(std::vector<uint64_t> positions, Positions(*order, linear.k()));
  WeightRow row;
  row.code = linear.scheme().code;
  row.group_size = linear.scheme().group_size;
  row.positions = std::move(positions);
  row.scales.resize(linear.groups());
  row.zero_points.resize(linear.groups());
  const PanelRange range{.n0 = n, .rows = 1, .k0 = 0, .cols = linear.k()};
  std::vector<std::byte> codes(PanelBytes(row.code, range));
  PREPACK_TRY(linear.ReadCodes(range, codes));
  PREPACK_TRY(linear.ReadScales(n, 1, row.scales));
  PREPACK_TRY(linear.ReadZeroPoints(n, 1, row.zero_points));
  Fill(codes, row);
  return row;
}

Result<WeightRow> ReadWeightRow(const PackedModule& packed, uint64_t n) {
  PREPACK_TRY_ASSIGN(const std::vector<uint32_t> order, ReadInputOrder(packed));
  PREPACK_TRY_ASSIGN(std::vector<uint64_t> positions, Positions(order, packed.request().k));
  const PackRequest& request = packed.request();
  WeightRow row;
  row.code = request.scheme.code;
  row.group_size = request.scheme.group_size;
  row.positions = std::move(positions);
  std::vector<std::byte> codes;
  PREPACK_TRY(ReadPackedScales(packed, n, 1, row.scales));
  PREPACK_TRY(ReadPackedZeroPoints(packed, n, 1, row.zero_points));
  PREPACK_TRY(ReadPackedCodes(packed, n, 1, codes));
  Fill(codes, row);
  return row;
}

int64_t CodeNumber(CodeType code, uint16_t bits) {
  return code == CodeType::kS8 ? static_cast<int8_t>(bits) : bits;
}

// A small window of a module's weights as numbers, codes or bytes.

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
    PREPACK_TRY(CheckHasPlaces(*module.linear));
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
