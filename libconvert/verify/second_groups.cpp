#include "verify/second_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "verify/second_config.h"
#include "verify/second_tensors.h"

namespace prepack {
namespace {

// Input channels per group where groups follow each other. The last may be short, so that the
// config decides where it names a size that gives as many groups.
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

// The index as stored; empty when there is none.
Status ReadIndex(const Checkpoint& source, const std::string& name, uint64_t k,
                 std::vector<int64_t>& index) {
  index.clear();
  const StoredTensor* tensor = source.Find(name);
  if (tensor == nullptr) return {};
  const SecondRange all{.row = 0, .rows = k, .column = 0, .columns = 1};
  if (tensor->dtype == DType::kI64) return ReadSecond(source, *tensor, all, index);
  std::vector<int32_t> narrow;
  Status status = ReadSecond(source, *tensor, all, narrow);
  index.assign(narrow.begin(), narrow.end());
  return status;
}

bool SaysNothing(const std::vector<int64_t>& index) {
  if (index.empty()) return true;
  const bool constant = std::ranges::count(index, index[0]) == std::ssize(index);
  return constant && (index[0] == -1 || index[0] == 0);
}

}  // namespace

Status ReadSecondGroups(const Checkpoint& source, const std::string& index_name, uint64_t k,
                        uint64_t groups, std::vector<uint64_t>& group_of) {
  std::vector<int64_t> index;
  Status status = ReadIndex(source, index_name, k, index);
  if (!status.ok()) return status;
  group_of.resize(k);
  if (SaysNothing(index)) {
    const Result<uint64_t> size = GroupSize(source, k, groups);
    if (!size.ok()) return size.status();
    for (uint64_t i = 0; i < k; ++i) group_of[i] = i / *size;
    return {};
  }
  const auto count = static_cast<int64_t>(groups);
  for (uint64_t i = 0; i < k; ++i) {
    const int64_t group = index[i] < 0 && index[i] >= -count ? index[i] + count : index[i];
    if (group < 0 || group >= count) {
      return Malformed(fmt::format("tensor {}", index_name), "a group index is out of range")
          .Found(fmt::format("{} at [{}]", index[i], i));
    }
    group_of[i] = static_cast<uint64_t>(group);
  }
  return {};
}

void TransposeScales(const std::vector<double>& columns, uint64_t rows,
                     std::vector<double>& scales) {
  const uint64_t groups = columns.size() / rows;
  scales.resize(columns.size());
  for (uint64_t i = 0; i < columns.size(); ++i) scales[i % rows * groups + i / rows] = columns[i];
}

}  // namespace prepack
