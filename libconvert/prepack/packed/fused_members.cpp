#include "prepack/packed/fused_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "prepack/model/quantized_linear.h"

namespace prepack {
namespace {

// The last part of a name that is the number 0, where there is one.
std::optional<std::pair<std::string_view, std::string_view>> AroundZero(std::string_view name) {
  constexpr std::string_view kZero = ".0.";
  const size_t at = name.rfind(kZero);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(name.substr(0, at + 1), name.substr(at + 2));
}

}  // namespace

FusedMembers::FusedMembers(std::vector<FusedMember> members, uint64_t experts) {
  const size_t each = experts > 1 && members.size() % experts == 0 ? members.size() / experts : 0;
  for (size_t i = 0; i < each; ++i) {
    const auto around = AroundZero(members[i].module);
    if (!around) break;
    rows_.push_back({.before = std::string(around->first),
                     .after = std::string(around->second),
                     .n = members[i].n});
  }
  if (each > 0 && rows_.size() == each) {
    repeats_ = experts;
    if (std::ranges::equal(*this, members)) return;
  }
  rows_.clear();
  repeats_ = 1;
  for (FusedMember& member : members) {
    rows_.push_back({.before = std::move(member.module), .after = {}, .n = member.n});
  }
}

FusedMember FusedMembers::operator[](size_t index) const {
  const Row& row = rows_[index % rows_.size()];
  if (repeats_ == 1) return {row.before, row.n};
  return {fmt::format("{}{}{}", row.before, index / rows_.size(), row.after), row.n};
}

std::optional<ChannelRange> FusedMembers::ChannelsOf(std::string_view module) const {
  uint64_t first = 0;
  for (const FusedMember& member : *this) {
    if (member.module == module) return ChannelRange{.first = first, .n = member.n};
    first += member.n;
  }
  return std::nullopt;
}

FusedMembers FusedMembersOf(const QuantizedLinear& linear) {
  std::vector<FusedMember> members;
  for (const QuantizedLinear* member : linear.members()) {
    members.push_back({std::string(member->module()), member->n()});
  }
  return FusedMembers(std::move(members), linear.stacked_experts());
}

bool operator==(const FusedMembers& a, const FusedMembers& b) {
  return std::ranges::equal(a, b);
}

}  // namespace prepack
