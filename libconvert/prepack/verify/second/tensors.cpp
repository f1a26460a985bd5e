// Tensors for the second decoders: bytes become floats or integers plainly, because this code is
// the reference for the fast one.

#include "prepack/verify/second/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"

namespace prepack {

Result<const StoredTensor*> SecondTensor(const Checkpoint& source, const std::string& name) {
  const StoredTensor* tensor = source.Find(name);
  if (tensor == nullptr) {
    return Unsupported(fmt::format("tensor {}", name), "the second decoder does not find it");
  }
  return tensor;
}

bool CutNumber(const std::string& module, std::string& stem, uint64_t& number) {
  const size_t dot = module.rfind('.');
  if (dot == std::string::npos) return false;
  stem = module.substr(0, dot);
  const char* end = module.data() + module.size();
  const auto parsed = std::from_chars(module.data() + dot + 1, end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

Result<SecondShape> ShapeOfSecond(const Checkpoint& source, const StoredTensor& tensor) {
  const TensorShape& shape = tensor.shape;
  if (shape.size() > 3) {
    return Unsupported(source.Where(tensor), "the second decoder takes matrices only");
  }
  SecondShape matrix{.rows = shape.empty() ? 1 : shape[0],
                     .columns = shape.size() < 2 ? 1 : shape[shape.size() - 1]};
  if (shape.size() == 3)
    matrix.rows *= shape[1];  // as the size of the tensor, it does not overflow
  return matrix;
}

Result<ByteRuns> RunsOfSecond(const Checkpoint& source, const StoredTensor& tensor,
                              const SecondRange& range, uint64_t element_bytes) {
  PREPACK_TRY_ASSIGN(const SecondShape shape, ShapeOfSecond(source, tensor));
  const bool inside = DTypeBits(tensor.dtype) == 8 * element_bytes && range.row <= shape.rows &&
                      range.rows <= shape.rows - range.row && range.column <= shape.columns &&
                      range.columns <= shape.columns - range.column;
  if (!inside) {
    return Malformed(source.Where(tensor), "not a matrix of the expected size");
  }
  return ByteRuns{.offset = (range.row * shape.columns + range.column) * element_bytes,
                  .run_bytes = range.columns * element_bytes,
                  .stride = shape.columns * element_bytes,
                  .runs = range.rows};
}

namespace {

// Reads numbers of the type and makes floats of them. All are widened exactly. `widen` is an object
// of its own, not a pointer, so that the loop takes several at a time.
template <typename T, typename Widen>
Status ReadAndWiden(const Checkpoint& source, const StoredTensor& tensor, const SecondRange& range,
                    const Widen& widen, std::vector<double>& out) {
  std::vector<T> stored;
  PREPACK_TRY(ReadSecond(source, tensor, range, stored));
  out.resize(stored.size());
  for (size_t i = 0; i < stored.size(); ++i) out[i] = static_cast<double>(widen(stored[i]));
  return {};
}

}  // namespace

Status ReadSecondFloats(const Checkpoint& source, const StoredTensor& tensor,
                        const SecondRange& range, std::vector<double>& out) {
  out.clear();
  return WithSecondFloats(
      tensor.dtype,
      [&]<typename T>(T /*bits*/, const auto& widen) {
        return ReadAndWiden<T>(source, tensor, range, widen, out);
      },
      [&] {
        return Unsupported(source.Where(tensor),
                           "the second decoder does not read numbers of this dtype")
            .Found(DTypeName(tensor.dtype));
      });
}

namespace {

// Input channels per group if groups are consecutive. The last group may be short, so if the config
// names a size that gives this number of groups, it decides.
Result<uint64_t> GroupSize(const Checkpoint& source, uint64_t k, uint64_t groups) {
  if (groups == 1) return k;
  for (const uint64_t size : SecondConfigNumbers(source, "group_size")) {
    if (CeilDiv(k, size) == groups) return size;
  }
  if (groups != 0 && k % groups == 0) return k / groups;
  return Malformed("config.json: quantization_config",
                   "shapes of codes, scales and zero points disagree")
      .Found(fmt::format("{} groups of {} input channels", groups, k));
}

// A piece of the index as stored.
Status ReadIndex(const Checkpoint& source, const StoredTensor& tensor, const InputSlab& piece,
                 std::vector<int64_t>& index) {
  const SecondRange range{.row = piece.k0, .rows = piece.inputs, .column = 0, .columns = 1};
  if (tensor.dtype == DType::kI64) return ReadSecond(source, tensor, range, index);
  std::vector<int32_t> narrow;
  Status status = ReadSecond(source, tensor, range, narrow);
  index.assign(narrow.begin(), narrow.end());
  return status;
}

// Input channels whose groups are looked at together.
constexpr uint64_t kIndexPiece = uint64_t{1} << 16;

bool IsConstant(std::span<const int64_t> index, int64_t entry) {
  return std::ranges::all_of(index, [&](int64_t other) { return other == entry; });
}

// Does an index whose entries in a slab are these say nothing? Stops at the first entry that does.
Result<bool> SaysNothing(const Checkpoint& source, const StoredTensor& tensor, uint64_t k,
                         std::span<const int64_t> in_slab) {
  const int64_t first = in_slab.front();
  if ((first != -1 && first != 0) || !IsConstant(in_slab, first)) return false;
  std::vector<int64_t> index;
  for (uint64_t k0 = 0; k0 < k && in_slab.size() < k; k0 += kIndexPiece) {
    const InputSlab piece{.k0 = k0, .inputs = std::min(kIndexPiece, k - k0)};
    PREPACK_TRY(ReadIndex(source, tensor, piece, index));
    if (!IsConstant(index, first)) return false;
  }
  return true;
}

}  // namespace

Status ReadSecondGroups(const Checkpoint& source, const std::string& index_name, uint64_t k,
                        uint64_t groups, const InputSlab& slab, std::vector<uint64_t>& group_of) {
  const StoredTensor* tensor = source.Find(index_name);
  std::vector<int64_t> index;
  bool nothing = true;
  if (tensor != nullptr) {
    PREPACK_TRY(ReadIndex(source, *tensor, slab, index));
    PREPACK_TRY_ASSIGN(nothing, SaysNothing(source, *tensor, k, index));
  }
  group_of.resize(slab.inputs);
  if (nothing) {
    PREPACK_TRY_ASSIGN(const uint64_t size, GroupSize(source, k, groups));
    for (uint64_t i = 0; i < slab.inputs;) {
      const uint64_t group = (slab.k0 + i) / size;
      const uint64_t end = std::min(slab.inputs, (group + 1) * size - slab.k0);
      std::fill(group_of.begin() + static_cast<std::ptrdiff_t>(i),
                group_of.begin() + static_cast<std::ptrdiff_t>(end), group);
      i = end;
    }
    return {};
  }
  const auto count = static_cast<int64_t>(groups);
  for (uint64_t i = 0; i < slab.inputs; ++i) {
    const int64_t group = index[i] < 0 && index[i] >= -count ? index[i] + count : index[i];
    if (group < 0 || group >= count) {
      return Malformed(fmt::format("tensor {}", index_name), "a group index is out of range")
          .Found(fmt::format("{} at [{}]", index[i], slab.k0 + i));
    }
    group_of[i] = static_cast<uint64_t>(group);
  }
  return {};
}

SecondGroupRange CountFromFirstGroup(std::vector<uint64_t>& group_of) {
  const auto [least, greatest] = std::ranges::minmax(group_of);
  for (uint64_t& group : group_of) group -= least;
  return {.first = least, .count = greatest - least + 1};
}

void TransposeScales(const std::vector<double>& columns, uint64_t rows,
                     std::vector<double>& scales) {
  const uint64_t groups = columns.size() / rows;
  scales.resize(columns.size());
  for (uint64_t group = 0; group < groups; ++group) {
    for (uint64_t row = 0; row < rows; ++row) {
      scales[row * groups + group] = columns[group * rows + row];
    }
  }
}

}  // namespace prepack
