// From a byte to the numbers in it: header, tensor, part of a module, then the weight, scale or sum
// by the closed forms of the format or layout.

#include "prepack/inspect/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/inspect/weight_values.h"

namespace prepack {
namespace {

// The bits of byte `byte` that a run of bits of the same tensor covers; none: it does not.
struct BitsOfByte {
  uint32_t bit = 0;
  uint32_t bits = 0;
};

BitsOfByte Overlap(uint64_t first, uint32_t count, uint64_t byte) {
  const uint64_t begin = std::max(first, 8 * byte);
  const uint64_t end = std::min(first + count, 8 * byte + 8);
  if (begin >= end) return {};
  return {.bit = static_cast<uint32_t>(begin - 8 * byte),
          .bits = static_cast<uint32_t>(end - begin)};
}

BitsOfByte OverlapOf(const StoredBits& stored, const StoredTensor& tensor, uint64_t byte) {
  for (const BitRun& run : stored) {
    if (run.tensor != tensor.name) continue;
    const BitsOfByte bits = Overlap(run.bit, run.bits, byte);
    if (bits.bits != 0) return bits;
  }
  return {};
}

bool IsOf(const StoredBits& stored, const StoredTensor& tensor) {
  return !stored.empty() && stored.front().tensor == tensor.name;
}

// Where byte `byte` of the tensor is in an array of its shape.
std::vector<uint64_t> ElementOf(const StoredTensor& tensor, uint64_t byte) {
  std::vector<uint64_t> element(tensor.shape.size());
  uint64_t index = byte * 8 / DTypeBits(tensor.dtype);
  for (size_t axis = element.size(); axis-- > 0;) {
    element[axis] = index % tensor.shape[axis];
    index /= tensor.shape[axis];
  }
  return element;
}

void AddCodes(const QuantizedLinear& linear, const StoredTensor& tensor, uint64_t byte,
              ByteContents& contents) {
  const SourcePlaces& places = *linear.places();
  const PanelRange near = places.CodesNear(byte);
  for (uint64_t n = near.n0; n < std::min(linear.n(), near.n0 + near.rows); ++n) {
    for (uint64_t k = near.k0; k < std::min(linear.k(), near.k0 + near.cols); ++k) {
      const BitsOfByte bits = OverlapOf(places.WhereCode(n, k), tensor, byte);
      if (bits.bits == 0) continue;
      contents.numbers.push_back({.n = n, .k = k, .bit = bits.bit, .bits = bits.bits});
    }
  }
}

// Groups by how far the values of a channel lie from the value of its group 0, which is the same
// for all channels. Only a few places then need to be checked, however many there are.
class GroupDistances {
 public:
  template <typename Where>
  GroupDistances(uint64_t groups, const Where& where) {
    for (uint64_t g = 0; g < groups; ++g) {
      distances_.emplace_back(FirstBit(where(0, g)) - FirstBit(where(0, 0)), g);
    }
    std::ranges::sort(distances_);
  }

  // The groups, ascending, whose values may have bits in the byte when that of group 0 is `stored`.
  std::vector<uint64_t> Near(const StoredBits& stored, uint64_t byte) const {
    std::vector<uint64_t> groups;
    for (const BitRun& run : stored) {
      const int64_t behind = static_cast<int64_t>(8 * byte + 8) - static_cast<int64_t>(run.bit);
      const std::pair first(behind - 7 - static_cast<int64_t>(run.bits), uint64_t{0});
      for (auto it = std::ranges::lower_bound(distances_, first);
           it != distances_.end() && it->first < behind; ++it) {
        groups.push_back(it->second);
      }
    }
    std::ranges::sort(groups);
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return groups;
  }

 private:
  static int64_t FirstBit(const StoredBits& stored) {
    return static_cast<int64_t>(stored.front().bit);
  }

  std::vector<std::pair<int64_t, uint64_t>> distances_;
};

// Scales or zero points; a number that channels share is listed once.
template <typename Where>
void AddValues(const QuantizedLinear& linear, const StoredTensor& tensor, uint64_t byte,
               const Where& where, ByteContents& contents) {
  const GroupDistances distances(linear.groups(), where);
  for (uint64_t n = 0; n < linear.n(); ++n) {
    for (const uint64_t g : distances.Near(where(n, 0), byte)) {
      const BitsOfByte bits = OverlapOf(where(n, g), tensor, byte);
      if (bits.bits == 0) continue;
      const auto shared = std::ranges::find_if(contents.numbers, [&](const HeldNumber& number) {
        return number.g == g && number.n + number.rows == n && number.bit == bits.bit;
      });
      if (shared != contents.numbers.end()) {
        ++shared->rows;
      } else {
        contents.numbers.push_back({.n = n, .g = g, .bit = bits.bit, .bits = bits.bits});
      }
    }
  }
}

// What the byte holds of the module; false if it belongs to another module that shares the tensor.
bool DescribeSourceByte(const QuantizedLinear& linear, const StoredTensor& tensor, uint64_t byte,
                        ByteContents& contents) {
  if (linear.places() == nullptr) return true;
  const SourcePlaces& places = *linear.places();
  const auto scale = [&](uint64_t n, uint64_t g) { return places.WhereScale(n, g); };
  const auto zero_point = [&](uint64_t n, uint64_t g) { return places.WhereZeroPoint(n, g); };
  if (IsOf(places.WhereCode(0, 0), tensor)) {
    contents.holds = "code";
    AddCodes(linear, tensor, byte, contents);
    if (contents.numbers.empty() && places.CodesNear(byte).rows == 0) return false;
  } else if (IsOf(scale(0, 0), tensor)) {
    contents.holds = "scale";
    AddValues(linear, tensor, byte, scale, contents);
  } else if (IsOf(zero_point(0, 0), tensor)) {
    contents.holds = "zero point";
    AddValues(linear, tensor, byte, zero_point, contents);
  } else {
    return true;
  }
  if (contents.numbers.empty()) contents.holds = "padding";
  return true;
}

void DescribeSourceTensor(const OpenedFolder& folder, const StoredTensor& tensor, uint64_t byte,
                          ByteContents& contents) {
  if (!folder.model) return;
  for (const auto& linear : folder.model->modules) {
    const auto& sources = linear->source_tensors();
    if (std::ranges::find(sources, tensor.name) == sources.end()) continue;
    contents.holds = "data";
    contents.numbers.clear();
    contents.module = linear->module();
    contents.form = folder.model->format;
    const bool is_its = DescribeSourceByte(*linear, tensor, byte, contents);
    if (is_its && contents.holds != "padding") return;
  }
}

std::string_view HoldsName(PartRole role) {
  switch (role) {
    case PartRole::kWeight:
      return "code";
    case PartRole::kScale:
      return "scale";
    case PartRole::kZeroPoint:
      return "zero point";
    case PartRole::kWeightSum:
      return "sum of codes";
    case PartRole::kInputScale:
      return "input scale";
    case PartRole::kInputZeroPoint:
      return "input zero point";
    case PartRole::kInputOrder:
      return "input order";
    case PartRole::kBias:
      return "bias";
    case PartRole::kGlobalScale:
      return "global scale";
    case PartRole::kInputGlobalScale:
      return "global scale of inputs";
    case PartRole::kWeightShape:
      return "shape";
    case PartRole::kGroupIndex:
      return "group of an input";
  }
  return "data";
}

// How many numbers a part has.
uint64_t ValuesOf(const PartSpec& part) {
  uint64_t values = 1;
  for (const uint64_t dim : part.shape) values *= dim;
  return values;
}

void AddPackedValues(const PackedModule& packed, PartRole role, uint64_t values, uint64_t byte,
                     ByteContents& contents) {
  const PackRequest& request = packed.request();
  const bool are_shared = role == PartRole::kScale && values < request.n * request.groups();
  for (const GroupPlace& place : ValuesAt(packed.layout(), request, role, byte)) {
    const PartBits where = WherePackedValue(packed.layout(), request, role, place);
    const BitsOfByte bits = Overlap(where.bit, where.bits, byte);
    const uint64_t rows = are_shared ? std::min(request.scheme.scale_rows, request.n - place.n) : 1;
    contents.numbers.push_back(
        {.n = place.n, .rows = rows, .g = place.g, .bit = bits.bit, .bits = bits.bits});
  }
}

Status AddPackedCodes(const PackedModule& packed, uint64_t byte, ByteContents& contents) {
  const Layout& layout = packed.layout();
  const PackRequest& request = packed.request();
  PREPACK_TRY_ASSIGN(const std::vector<uint32_t> order, ReadInputOrder(packed));
  // Converts input channels from the kernel's numbering to the checkpoint's.
  const auto channel = [&](uint64_t j) -> uint64_t { return order.empty() ? j : order[j]; };
  const WeightByte found = WeightsAt(layout, request, byte);
  for (const WeightPlace& place : found.weights) {
    const PartBits where = WherePackedCode(layout, request, place.n, place.k);
    const BitsOfByte bits = Overlap(where.bit, where.bits, byte);
    contents.numbers.push_back(
        {.n = place.n, .k = channel(place.k), .bit = bits.bit, .bits = bits.bits});
  }
  if (!found.weights.empty()) return {};
  if (layout.HoldsParameters()) {
    AddPackedValues(packed, PartRole::kScale, request.n * request.groups(), byte, contents);
    contents.holds = "scale";
    if (!contents.numbers.empty()) return {};
  }
  contents.holds = found.sum_of ? "sum of codes" : "padding";
  if (found.sum_of) contents.numbers.push_back({.n = *found.sum_of});
  return {};
}

Status DescribePackedByte(const PackedModule& packed, const PartSpec& part, uint64_t byte,
                          ByteContents& contents) {
  contents.holds = HoldsName(part.role);
  switch (part.role) {
    case PartRole::kWeight:
      return AddPackedCodes(packed, byte, contents);
    case PartRole::kScale:
    case PartRole::kZeroPoint:
      AddPackedValues(packed, part.role, ValuesOf(part), byte, contents);
      if (contents.numbers.empty()) contents.holds = "padding";
      return {};
    case PartRole::kWeightSum:
    case PartRole::kBias:
      contents.numbers.push_back({.n = contents.element.back()});
      return {};
    case PartRole::kInputScale:
    case PartRole::kInputZeroPoint:
    case PartRole::kInputOrder:
    case PartRole::kGlobalScale:
    case PartRole::kInputGlobalScale:
    case PartRole::kWeightShape:
    case PartRole::kGroupIndex:
      break;
  }
  return {};
}

Status DescribePackedTensor(const OpenedFolder& folder, const StoredTensor& tensor, uint64_t byte,
                            ByteContents& contents) {
  for (const auto& [name, record] : folder.packed->manifest().modules) {
    for (const auto& [part_name, stored] : record.parts) {
      if (stored.tensor != tensor.name) continue;
      contents.module = name;
      contents.form = record.layout;
      PREPACK_TRY_ASSIGN(const PackedModule packed,
                         PackedModule::Open(*folder.packed, name, record));
      for (const PartSpec& part : packed.parts()) {
        if (part.name == part_name) return DescribePackedByte(packed, part, byte, contents);
      }
    }
  }
  return {};
}

Result<const CheckpointFile*> FindFile(const Checkpoint& checkpoint, std::string_view name) {
  std::vector<std::string> names;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (file.name == name) return &file;
    names.push_back(file.name);
  }
  return Usage("file", "the folder has no such safetensors file")
      .Found(name)
      .Hint(DidYouMean(name, names));
}

const StoredTensor* TensorAt(const Checkpoint& checkpoint, const CheckpointFile& file,
                             uint64_t offset) {
  const auto index = static_cast<size_t>(&file - checkpoint.files().data());
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (tensor.file == index && tensor.offset <= offset && offset - tensor.offset < tensor.bytes) {
      return &tensor;
    }
  }
  return nullptr;
}

}  // namespace

Result<ByteContents> ReadByteContents(const OpenedFolder& folder, std::string_view file,
                                      uint64_t offset) {
  PREPACK_TRY_ASSIGN(const CheckpointFile* found, FindFile(*folder.checkpoint, file));
  const CheckpointFile& stored = *found;
  if (offset >= stored.file.size()) {
    return Usage(file, "the offset is beyond the end of the file")
        .Found(fmt::format("{}", offset))
        .Expected(fmt::format("below {}", stored.file.size()));
  }
  ByteContents contents{.file = std::string(file), .offset = offset};
  std::byte byte{};
  PREPACK_TRY(stored.file.ReadAt(offset, {&byte, 1}));
  contents.byte = std::to_integer<uint8_t>(byte);
  const StoredTensor* tensor = TensorAt(*folder.checkpoint, stored, offset);
  if (tensor == nullptr) {
    contents.holds = offset < kHeaderLengthBytes ? "header length" : "header";
    return contents;
  }
  contents.tensor =
      NamedTensor{std::string(tensor->name), tensor->dtype, tensor->shape, tensor->offset};
  contents.holds = "data";
  contents.element = ElementOf(*tensor, offset - tensor->offset);
  if (folder.packed) {
    PREPACK_TRY(DescribePackedTensor(folder, *tensor, offset - tensor->offset, contents));
  } else {
    DescribeSourceTensor(folder, *tensor, offset - tensor->offset, contents);
  }
  return contents;
}

}  // namespace prepack
