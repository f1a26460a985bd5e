#include "prepack/formats/group_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"

namespace prepack {
namespace {

class IndexReader {
 public:
  IndexReader(const Checkpoint& checkpoint, const StoredTensor& g_idx, uint64_t k,
              uint64_t group_size, GroupDialect dialect)
      : checkpoint_(checkpoint),
        g_idx_(g_idx),
        k_(k),
        group_size_(group_size),
        groups_(CeilDiv(k, group_size)),
        dialect_(dialect) {}

  Result<GroupOrder> Read() const {
    PREPACK_TRY(CheckTensor());
    PREPACK_TRY_ASSIGN(const std::vector<int64_t> indexes, ReadIndexes());
    GroupOrder order;
    PREPACK_TRY_ASSIGN(const bool unset, IsUnset(indexes));
    if (unset) {
      order.kind = GroupOrder::Kind::kUnset;
      return order;
    }
    if (IsNatural(indexes)) {
      order.kind = GroupOrder::Kind::kNatural;
      return order;
    }
    order.kind = GroupOrder::Kind::kScattered;
    PREPACK_TRY_ASSIGN(order.group_of, Groups(indexes));
    PREPACK_TRY_ASSIGN(order.k_order, SortByGroup(order.group_of));
    return order;
  }

 private:
  Status CheckTensor() const {
    if (k_ > std::numeric_limits<uint32_t>::max()) {
      return Unsupported(checkpoint_.Where(g_idx_), "K is too large for an index of groups")
          .Found(std::to_string(k_))
          .Id(FindingId("tensor-shape"));
    }
    PREPACK_TRY(RequireDType(checkpoint_, g_idx_, "the group indices", {DType::kI32, DType::kI64}));
    return RequireShape(checkpoint_, g_idx_, std::vector{k_}, "one per input channel");
  }

  Result<std::vector<int64_t>> ReadIndexes() const {
    std::vector<int64_t> indexes(k_);
    if (g_idx_.dtype == DType::kI64) {
      PREPACK_TRY(checkpoint_.Read(g_idx_, 0, std::as_writable_bytes(std::span(indexes))));
      return indexes;
    }
    std::vector<int32_t> narrow(k_);
    PREPACK_TRY(checkpoint_.Read(g_idx_, 0, std::as_writable_bytes(std::span(narrow))));
    std::ranges::copy(narrow, indexes.begin());
    return indexes;
  }

  // An error where only a part is unset.
  Result<bool> IsUnset(const std::vector<int64_t>& indexes) const {
    const auto count = [&](int64_t value) {
      return static_cast<uint64_t>(std::ranges::count(indexes, value));
    };
    const uint64_t unset = count(-1);
    if (unset == k_) return true;
    if (dialect_ == GroupDialect::kGptq) return groups_ > 1 && count(0) == k_;
    if (unset == 0) return false;
    return Malformed(checkpoint_.Where(g_idx_), "only some group indices are set")
        .Found(fmt::format("{} of {} are -1", unset, k_))
        .Id(FindingId("order-half-set"));
  }

  // Groups count from the end, too, where the dialect says so: GPTQModel packs them as Python
  // would.
  std::optional<uint32_t> GroupOf(int64_t index) const {
    const auto groups = static_cast<int64_t>(groups_);
    if (index < 0 && dialect_ == GroupDialect::kGptq) index += groups;
    if (index < 0 || index >= groups) return std::nullopt;
    return static_cast<uint32_t>(index);
  }

  bool IsNatural(const std::vector<int64_t>& indexes) const {
    for (uint64_t k = 0; k < k_; ++k) {
      if (GroupOf(indexes[k]) != static_cast<uint32_t>(k / group_size_)) return false;
    }
    return true;
  }

  Result<std::vector<uint32_t>> Groups(const std::vector<int64_t>& indexes) const {
    std::vector<uint32_t> groups(k_);
    for (uint64_t k = 0; k < k_; ++k) {
      const std::optional<uint32_t> group = GroupOf(indexes[k]);
      if (!group) {
        return Malformed(checkpoint_.Where(g_idx_), "a group index is out of range")
            .Found(fmt::format("{} at [{}]", indexes[k], k))
            .Expected(fmt::format("0 to {}: there are {} groups", groups_ - 1, groups_))
            .Id(FindingId("order-out-of-range"));
      }
      groups[k] = *group;
    }
    return groups;
  }

  // A stable counting sort of the channels by their groups.
  Result<InputOrder> SortByGroup(const std::vector<uint32_t>& group_of) const {
    std::vector<uint64_t> count(groups_);
    for (const uint32_t group : group_of) ++count[group];
    for (uint64_t group = 0; group < groups_; ++group) {
      const uint64_t expected = std::min(group_size_, k_ - group * group_size_);
      if (count[group] == expected) continue;
      return Malformed(checkpoint_.Where(g_idx_), "the groups are not of one size")
          .Found(fmt::format("{} input channels in group {}", count[group], group))
          .Expected(std::to_string(expected))
          .Hint("The index may belong to another module or group size")
          .Id(FindingId("order-unbalanced"));
    }
    std::vector<uint64_t> next(groups_);
    for (uint64_t group = 0; group < groups_; ++group) next[group] = group * group_size_;
    InputOrder order(k_);
    for (uint64_t k = 0; k < k_; ++k) order[next[group_of[k]]++] = static_cast<uint32_t>(k);
    return order;
  }

  const Checkpoint& checkpoint_;
  const StoredTensor& g_idx_;
  uint64_t k_;
  uint64_t group_size_;
  uint64_t groups_;
  GroupDialect dialect_;
};

}  // namespace

Result<GroupOrder> ReadGroupOrder(const Checkpoint& checkpoint, const StoredTensor* g_idx,
                                  uint64_t k, uint64_t group_size, GroupDialect dialect) {
  if (g_idx == nullptr) return GroupOrder();
  return IndexReader(checkpoint, *g_idx, k, group_size, dialect).Read();
}

Result<InputOrder> ReadKOrder(const Checkpoint& checkpoint, const StoredTensor& g_idx, uint64_t k,
                              uint64_t group_size, GroupDialect dialect) {
  PREPACK_TRY_ASSIGN(GroupOrder order, ReadGroupOrder(checkpoint, &g_idx, k, group_size, dialect));
  if (order.kind == GroupOrder::Kind::kScattered) return std::move(order.k_order);
  return Malformed(checkpoint.Where(g_idx),
                   "the order of the input channels changed while prepack used it")
      .Hint("Do not change the source while prepack runs");
}

}  // namespace prepack
