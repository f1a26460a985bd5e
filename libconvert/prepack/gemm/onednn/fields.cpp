#include "prepack/gemm/onednn/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <span>
#include <utility>

#include "prepack/base/status.h"

namespace prepack {
namespace {

constexpr size_t kDims = 2;

Status CannotWrite(std::string_view what) {
  return Unsupported("oneDNN",
                     fmt::format("prepack cannot write the form that oneDNN asks for: {}", what))
      .Hint("Choose --onednn-form blocked or --onednn-form plain, which do not depend on oneDNN");
}

// Values that are negative here mean "known at run time only"; none is as large as INT64_MAX.
bool AreSizes(std::span<const int64_t> values) {
  for (const int64_t value : values) {
    if (value < 0 || value == std::numeric_limits<int64_t>::max()) return false;
  }
  return true;
}

Status CheckKind(const OneDnnFields& fields) {
  if (!fields.blocked) return CannotWrite("it is not a blocked form");
  if (!fields.s8) return CannotWrite("its elements are not s8");
  if (fields.offset != 0) {
    return CannotWrite(fmt::format("it begins at element {}", fields.offset));
  }
  for (const auto& [name, values] :
       {std::pair{"dimensions", &fields.dims}, std::pair{"padded dimensions", &fields.padded_dims},
        std::pair{"strides", &fields.strides}}) {
    if (values->size() == kDims && AreSizes(*values)) continue;
    return CannotWrite(fmt::format("its {} are [{}]", name, fmt::join(*values, ", ")));
  }
  const bool pairs = fields.inner_sizes.size() == fields.inner_dims.size();
  const bool few = fields.inner_sizes.size() <= InnerBlocks::capacity();
  if (pairs && few && AreSizes(fields.inner_sizes) && AreSizes(fields.inner_dims)) return {};
  return CannotWrite(fmt::format("its inner blocks are [{}] along [{}]",
                                 fmt::join(fields.inner_sizes, ", "),
                                 fmt::join(fields.inner_dims, ", ")));
}

std::array<uint64_t, kDims> Pair(const std::vector<int64_t>& values) {
  return {static_cast<uint64_t>(values[0]), static_cast<uint64_t>(values[1])};
}

// The blocks, without what lies behind them.
Result<BlockedDesc> BlocksOf(const OneDnnFields& fields, uint64_t k, uint64_t n) {
  PREPACK_TRY(CheckKind(fields));
  BlockedDesc desc{.dims = Pair(fields.dims),
                   .padded_dims = Pair(fields.padded_dims),
                   .strides = Pair(fields.strides),
                   .inner = {}};
  for (size_t i = 0; i < fields.inner_sizes.size(); ++i) {
    if (fields.inner_dims[i] >= static_cast<int64_t>(kDims)) {
      return CannotWrite(
          fmt::format("an inner block lies along dimension {}", fields.inner_dims[i]));
    }
    desc.inner.push_back({.dim = static_cast<uint32_t>(fields.inner_dims[i]),
                          .size = static_cast<uint64_t>(fields.inner_sizes[i])});
  }
  if (Status status = CheckBlockedDesc(desc, k, n); !status.ok()) {
    return CannotWrite(status.ToString());
  }
  return desc;
}

// How many rows of sums, i32 [padded N], lie behind the elements.
Result<uint64_t> RowsOfSums(const OneDnnFields& fields, const BlockedDesc& desc, uint64_t most) {
  const uint64_t row = desc.padded_dims[1] * sizeof(int32_t);
  for (uint64_t rows = 0; rows <= most; ++rows) {
    if (fields.bytes == desc.Elements() + rows * row) return rows;
  }
  return CannotWrite(fmt::format("it has {} bytes for {} elements and at most {} rows of {} sums",
                                 fields.bytes, desc.Elements(), most, desc.padded_dims[1]));
}

}  // namespace

Result<BlockedDesc> WeightsDescOf(const OneDnnFields& fields, uint64_t k, uint64_t n) {
  Result<BlockedDesc> desc = BlocksOf(fields, k, n);
  if (!desc.ok()) return desc.status();
  PREPACK_TRY_ASSIGN(const uint64_t rows, RowsOfSums(fields, *desc, 1));
  desc->s8s8_compensation = rows == 1;
  return desc;
}

Result<BlockedDesc> WeightsDescOf(const OneDnnFields& fields,
                                  const OneDnnFields& without_zero_points, uint64_t k, uint64_t n) {
  Result<BlockedDesc> desc = BlocksOf(fields, k, n);
  if (!desc.ok()) return desc.status();
  PREPACK_TRY_ASSIGN(const uint64_t rows, RowsOfSums(fields, *desc, 2));
  desc->s8s8_compensation = rows == 2;
  desc->zero_point_compensation = rows == 2;
  if (rows != 1) return desc;

  // The row is for whatever the same kernel has no row for without zero points. CPUs with AMX,
  // which multiply signed activations as they are, then ask for blocks of another size as well.
  PREPACK_TRY_ASSIGN(const BlockedDesc without, WeightsDescOf(without_zero_points, k, n));
  OneDnnFields same = without_zero_points;
  same.bytes = fields.bytes;
  const bool same_kernel = without_zero_points.implementation == fields.implementation;
  if (!same_kernel || (without.s8s8_compensation && same != fields)) {
    return CannotWrite(
        "it has one row of sums, which may be for signed activations or for zero points");
  }
  desc->s8s8_compensation = without.s8s8_compensation;
  desc->zero_point_compensation = !without.s8s8_compensation;
  return desc;
}

}  // namespace prepack
