#include "formats/awq_linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/finding.h"

namespace prepack {

AwqLinear::AwqLinear(const Checkpoint& checkpoint, const AwqModuleParts& parts)
    : StoredLinear(checkpoint), tensors_(parts.tensors) {
  module_ = parts.module;
  scheme_ = parts.scheme;
  n_ = parts.n;
  k_ = parts.k;
  stored_scale_dtype_ = tensors_.scales->dtype;
  AddSource(*tensors_.qweight);
  AddSource(*tensors_.scales);
  if (tensors_.qzeros != nullptr) AddSource(*tensors_.qzeros);
}

Status AwqLinear::CheckSymmetric(uint64_t n0, std::span<const uint8_t> zero_points) const {
  if (!scheme_.symmetric || zero_points.empty()) return {};
  const uint8_t symmetric = ZeroOfSymmetric(scheme_);
  const auto odd = std::ranges::find_if(zero_points, [&](uint8_t z) { return z != symmetric; });
  if (odd == zero_points.end()) return {};
  const auto index = static_cast<uint64_t>(odd - zero_points.begin());
  const auto [low, high] = std::ranges::minmax(zero_points);
  return Malformed(checkpoint().Where(*tensors_.qzeros),
                   "the config says zero_point false, but the zero points are not all 8")
      .Found(fmt::format("{} at channel {}, group {}; {} to {} in these rows", *odd,
                         n0 + index / groups(), index % groups(), low, high))
      .Expected("8 throughout")
      .Hint(
          "If the zero points are right, set zero_point to true; vLLM would ignore them and "
          "compute with 8")
      .Id(FindingId("zero-point-not-symmetric"));
}

Status AwqLinear::NotPadding(const StoredTensor& tensor, uint64_t n, uint64_t group) const {
  return Malformed(checkpoint().Where(tensor), "there is data in the padding behind the last group")
      .Found(fmt::format("channel {}, group {}", n, group))
      .Expected(fmt::format("zeros from group {} on: K = {}, groups of {}", groups(), k_,
                            scheme_.group_size))
      .Hint("The group size of the config may be wrong")
      .Id(FindingId("awq-padding"));
}

}  // namespace prepack
