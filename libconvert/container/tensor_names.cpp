#include "container/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace prepack {

Status CheckNamesDiffer(std::span<const TensorInfo> tensors, std::string_view where) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.emplace_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return Malformed(fmt::format("{}: tensor {}", where, *twin), "the name is in the header twice");
}

}  // namespace prepack
