#include "formats/gptq_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "formats/finding.h"
#include "formats/stored_linear.h"

namespace prepack {

namespace {

Status OutOfRange(const Checkpoint& checkpoint, const GptqShape& shape, int64_t index, uint64_t k) {
  return Malformed(checkpoint.Where(*shape.g_idx), "a group index is out of range")
      .Found(fmt::format("{} at [{}]", index, k))
      .Expected(fmt::format("0 to {}: there are {} groups", shape.groups - 1, shape.groups))
      .Id(FindingId("order-out-of-range"));
}

Result<std::vector<int32_t>> ReadIndices(const Checkpoint& checkpoint, const GptqShape& shape) {
  std::vector<int32_t> indices(shape.k);
  if (shape.g_idx->dtype == DType::kI32) {
    Status status = checkpoint.Read(*shape.g_idx, 0, std::as_writable_bytes(std::span(indices)));
    if (!status.ok()) return status;
    return indices;
  }
  std::vector<int64_t> wide(shape.k);
  Status status = checkpoint.Read(*shape.g_idx, 0, std::as_writable_bytes(std::span(wide)));
  if (!status.ok()) return status;
  for (uint64_t k = 0; k < shape.k; ++k) {
    if (!std::in_range<int32_t>(wide[k])) return OutOfRange(checkpoint, shape, wide[k], k);
    indices[k] = static_cast<int32_t>(wide[k]);
  }
  return indices;
}

bool IsUnset(const std::vector<int32_t>& indices, uint64_t groups) {
  const auto all = [&](int32_t value) {
    return std::ranges::all_of(indices, [value](int32_t index) { return index == value; });
  };
  return all(-1) || (groups > 1 && all(0));
}

// The number of channels that each group must have.
uint64_t SizeOfGroup(const GptqShape& shape, uint64_t group) {
  return std::min(shape.group_size, shape.k - group * shape.group_size);
}

// Do the channels lie group by group? Indexes may count from the end, see below.
bool IsNatural(const std::vector<int32_t>& indices, const GptqShape& shape) {
  const auto groups = static_cast<int64_t>(shape.groups);
  auto index = indices.begin();
  for (int64_t group = 0; group < groups; ++group) {
    const auto end =
        index + static_cast<std::ptrdiff_t>(SizeOfGroup(shape, static_cast<uint64_t>(group)));
    for (; index != end; ++index) {
      if (*index != group && *index != group - groups) return false;
    }
  }
  return true;
}

// A stable counting sort of the channels by their groups.
Status SortByGroup(const Checkpoint& checkpoint, const GptqShape& shape, GptqOrder& order) {
  std::vector<uint64_t> count(shape.groups);
  for (const uint32_t group : order.group_of) ++count[group];
  for (uint64_t group = 0; group < shape.groups; ++group) {
    if (count[group] == SizeOfGroup(shape, group)) continue;
    return Malformed(checkpoint.Where(*shape.g_idx), "the groups are not of one size")
        .Found(fmt::format("{} input channels in group {}", count[group], group))
        .Expected(std::to_string(SizeOfGroup(shape, group)))
        .Hint("The index may belong to another module or group size")
        .Id(FindingId("order-unbalanced"));
  }
  std::vector<uint64_t> next(shape.groups);
  for (uint64_t group = 0; group < shape.groups; ++group) next[group] = group * shape.group_size;
  order.k_order.resize(shape.k);
  for (uint64_t k = 0; k < shape.k; ++k) {
    order.k_order[next[order.group_of[k]]++] = static_cast<uint32_t>(k);
  }
  return {};
}

}  // namespace

Result<GptqOrder> ReadGptqOrder(const Checkpoint& checkpoint, const GptqShape& shape) {
  GptqOrder order;
  if (shape.g_idx == nullptr) return order;
  if (shape.k > std::numeric_limits<uint32_t>::max()) {
    return Unsupported(checkpoint.Where(*shape.g_idx), "K is too large for an index of groups")
        .Found(std::to_string(shape.k))
        .Id(FindingId("tensor-shape"));
  }
  const Result<std::vector<int32_t>> indices = ReadIndices(checkpoint, shape);
  if (!indices.ok()) return indices.status();
  if (IsUnset(*indices, shape.groups)) {
    order.kind = GptqOrder::Kind::kUnset;
    return order;
  }
  if (IsNatural(*indices, shape)) {
    order.kind = GptqOrder::Kind::kNatural;
    return order;
  }
  order.kind = GptqOrder::Kind::kScattered;
  order.group_of.resize(shape.k);
  const auto groups = static_cast<int64_t>(shape.groups);
  for (uint64_t k = 0; k < shape.k; ++k) {
    const int64_t index = (*indices)[k];
    if (index < -groups || index >= groups) return OutOfRange(checkpoint, shape, index, k);
    // GPTQModel packs negative ones as Python indexes: from the end.
    order.group_of[k] = static_cast<uint32_t>(index < 0 ? index + groups : index);
  }
  Status status = SortByGroup(checkpoint, shape, order);
  if (!status.ok()) return status;
  return order;
}

Result<InputOrder> ReadKOrder(const Checkpoint& checkpoint, const GptqShape& shape) {
  Result<GptqOrder> order = ReadGptqOrder(checkpoint, shape);
  if (!order.ok()) return order.status();
  if (order->kind == GptqOrder::Kind::kScattered) return std::move(order->k_order);
  return OrderHasChanged(checkpoint.Where(*shape.g_idx));
}

void ReportGptqOrder(const GptqOrder& order, const ModuleTensors& module, const GptqShape& shape,
                     bool act_order, FindingTally& findings) {
  switch (order.kind) {
    case GptqOrder::Kind::kAbsent:
      if (!act_order || shape.groups == 1) return;
      findings.Add("order-missing", module.name,
                   "desc_act is true, but g_idx is missing: natural order");
      return;
    case GptqOrder::Kind::kUnset:
      findings.Add(
          act_order ? FindingId("order-missing") : FindingId("gptq-order-unset"), module.name,
          fmt::format("g_idx was never filled in: natural order; desc_act is {}", act_order));
      return;
    case GptqOrder::Kind::kNatural:
      if (!act_order || shape.groups == 1) return;
      findings.Add("order-unneeded", module.name,
                   "desc_act is true, but g_idx keeps the natural order (static groups)");
      return;
    case GptqOrder::Kind::kScattered:
      findings.Add("order-present", module.name,
                   "the groups lie over reordered input channels (desc_act)");
      if (act_order) return;
      findings.Add("order-undeclared", module.name,
                   "desc_act is false, but g_idx scatters the groups; the tensor wins");
      return;
  }
}

}  // namespace prepack
