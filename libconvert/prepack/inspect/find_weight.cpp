// From weight (n, k) to its bits, in the source and in the packed folder, by the closed forms that
// also pack and read.

#include "prepack/inspect/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/inspect/weight_values.h"

namespace prepack {
namespace {

// Fills cells from the weights that `near` returns for a byte, which neighbouring bytes mostly
// share.
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
                    .module = std::string(linear.module()),
                    .tensor = std::string(tensor.name),
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
  PREPACK_TRY_ASSIGN(std::vector<uint32_t> order, ReadInputOrder(packed));
  DrawnModule drawn{.path = folder.path.string(),
                    .form = std::string(layout.id),
                    .module = packed.name(),
                    .tensor = packed.layout().TensorName(packed.name(), weight),
                    .cell_bits = WeightCellBits(request),
                    .cells = {}};
  const uint64_t all = TensorBytes(weight.dtype, weight.shape).value();
  drawn.cells.resize(std::min(bytes, all) * 8 / drawn.cell_bits);
  FillFrom([&](uint64_t byte) { return PackedCodesNear(layout, request, byte); },
           [&](uint64_t n, uint64_t j) { return layout.weight_bit(request, n, j); }, drawn);
  for (WeightCell& cell : drawn.cells) {
    if (cell && !order.empty()) cell->k = order[cell->k];
  }
  return drawn;
}

}  // namespace

Result<DrawnModule> DrawModule(const OpenedFolder& folder, std::string_view module,
                               uint64_t bytes) {
  PREPACK_TRY_ASSIGN(const ShownModule shown, FindShown(folder, module));
  if (shown.linear != nullptr) PREPACK_TRY(CheckHasPlaces(*shown.linear));
  if (shown.linear != nullptr) return DrawStored(folder, *shown.linear, bytes);
  return DrawPacked(folder, *shown.packed, bytes);
}

namespace {

Status CheckInside(std::string_view module, uint64_t n, uint64_t k, uint64_t rows, uint64_t cols) {
  if (n < rows && k < cols) return {};
  return Usage(module, "the module has no such weight")
      .Found(fmt::format("({}, {})", n, k))
      .Expected(fmt::format("output channel 0 to {}, input channel 0 to {}", rows - 1, cols - 1));
}

BitsInFile Locate(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t bit,
                  uint32_t bits) {
  return {.tensor = std::string(tensor.name),
          .file = checkpoint.files()[tensor.file].name,
          .offset = tensor.offset + bit / 8,
          .in_tensor = bit / 8,
          .bit = static_cast<uint32_t>(bit % 8),
          .bits = bits};
}

Status Add(const Checkpoint& checkpoint, std::string_view what, std::vector<BitsInFile> where,
           double value, FoundWeight& found) {
  if (where.empty()) return {};
  PREPACK_TRY_ASSIGN(const uint64_t stored, ReadBits(checkpoint, where));
  found.numbers.push_back(
      {.what = what, .where = std::move(where), .stored = stored, .value = value});
  return {};
}

std::vector<BitsInFile> LocateAll(const Checkpoint& checkpoint, const StoredBits& bits) {
  std::vector<BitsInFile> where;
  for (const BitRun& run : bits) {
    where.push_back(Locate(checkpoint, *checkpoint.Find(run.tensor), run.bit, run.bits));
  }
  return where;
}

std::string_view ZeroPointName(const Checkpoint& checkpoint, const StoredBits& bits) {
  const DType dtype = checkpoint.Find(bits.front().tensor)->dtype;
  const bool is_float = dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
  return is_float ? "zero point (as -scale * z)" : "zero point";
}

Status AddFromSource(const OpenedFolder& folder, const QuantizedLinear& linear,
                     const WeightRow& row, FoundWeight& found) {
  const SourcePlaces& places = *linear.places();
  const Checkpoint& checkpoint = *folder.checkpoint;
  Status status = Add(checkpoint, "code", LocateAll(checkpoint, places.WhereCode(found.n, found.k)),
                      static_cast<double>(CodeNumber(row.code, row.codes[found.k])), found);
  if (status.ok()) {
    status =
        Add(checkpoint, "scale", LocateAll(checkpoint, places.WhereScale(found.n, found.group)),
            row.scales[found.group], found);
  }
  const StoredBits zero_point = places.WhereZeroPoint(found.n, found.group);
  if (!status.ok() || zero_point.empty()) return status;
  return Add(checkpoint, ZeroPointName(checkpoint, zero_point), LocateAll(checkpoint, zero_point),
             row.zero_points[found.group], found);
}

// The part that has the numbers of the role; null: there are none.
const PartSpec* FindHolder(const PackedModule& packed, PartRole role) {
  const bool held = role == PartRole::kScale && packed.layout().HoldsParameters();
  return FindPart(packed.parts(), held ? PartRole::kWeight : role);
}

// A number of a part. The layout says where it is; nothing if the layout does not store it.
Status AddPacked(const OpenedFolder& folder, const PackedModule& packed, PartRole role,
                 std::string_view what, const PartBits& bits, double value, FoundWeight& found) {
  const PartSpec* part = FindHolder(packed, role);
  if (part == nullptr || bits.bits == 0) return {};
  const StoredTensor* tensor =
      folder.checkpoint->Find(packed.layout().TensorName(packed.name(), *part));
  if (tensor == nullptr || CeilDiv(bits.bit + bits.bits, 8) > tensor->bytes) {
    return Malformed(packed.name(), fmt::format("the files do not contain part {}", part->name))
        .Hint("Run `prepack verify` on the folder");
  }
  return Add(*folder.checkpoint, what, {Locate(*folder.checkpoint, *tensor, bits.bit, bits.bits)},
             value, found);
}

Status AddFromPacked(const OpenedFolder& folder, const PackedModule& packed, const WeightRow& row,
                     FoundWeight& found) {
  const Layout& layout = packed.layout();
  const PackRequest& request = packed.request();
  const GroupPlace group{.n = found.n, .g = found.group};
  Status status = AddPacked(folder, packed, PartRole::kWeight, "code",
                            WherePackedCode(layout, request, found.n, found.position),
                            static_cast<double>(CodeNumber(row.code, row.codes[found.k])), found);
  const std::array<std::pair<PartRole, std::string_view>, 2> values = {
      {{PartRole::kScale, "scale"}, {PartRole::kZeroPoint, "zero point"}}};
  for (const auto& [role, what] : values) {
    if (!status.ok() || FindHolder(packed, role) == nullptr) continue;
    const double value = role == PartRole::kScale ? static_cast<double>(row.scales[found.group])
                                                  : row.zero_points[found.group];
    status = AddPacked(folder, packed, role, what, WherePackedValue(layout, request, role, group),
                       value, found);
  }
  return status;
}

}  // namespace

Result<uint64_t> ReadBits(const Checkpoint& checkpoint, const std::vector<BitsInFile>& where) {
  uint64_t number = 0;
  uint32_t shift = 0;
  for (const BitsInFile& run : where) {
    const StoredTensor& tensor = *checkpoint.Find(run.tensor);
    std::array<std::byte, 8> bytes{};
    PREPACK_TRY(checkpoint.Read(tensor, run.in_tensor,
                                std::span(bytes).first(CeilDiv(run.bit + run.bits, 8))));
    uint64_t word = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      word |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    }
    number |= (word >> run.bit & ((uint64_t{1} << run.bits) - 1)) << shift;
    shift += run.bits;
  }
  return number;
}

Result<FoundWeight> FindWeight(const OpenedFolder& folder, std::string_view module, uint64_t n,
                               uint64_t k) {
  PREPACK_TRY_ASSIGN(const ShownModule shown, FindShown(folder, module));
  PREPACK_TRY(CheckInside(module, n, k, shown.n, shown.k));
  if (shown.linear != nullptr) PREPACK_TRY(CheckHasPlaces(*shown.linear));
  PREPACK_TRY_ASSIGN(const WeightRow row, shown.Row(n));
  FoundWeight found{.path = folder.path.string(),
                    .form = shown.form,
                    .module = shown.packed ? shown.packed->name() : std::string(module),
                    .n = shown.first + n,
                    .k = k,
                    .position = row.positions[k],
                    .group = row.GroupOf(k),
                    .weight = row.values[k]};
  PREPACK_TRY(shown.packed ? AddFromPacked(folder, *shown.packed, row, found)
                           : AddFromSource(folder, *shown.linear, row, found));
  return found;
}

}  // namespace prepack
