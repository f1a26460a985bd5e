#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

class QuantizedLinear;

// A module of the source that is a piece of a packed one.
struct FusedMember {
  std::string module;
  uint64_t n = 0;  // output channels

  friend bool operator==(const FusedMember&, const FusedMember&) = default;
};

// Output channels [first, first + n) of a module.
struct ChannelRange {
  uint64_t first = 0;
  uint64_t n = 0;
};

// What a packed module was made of, in the order of its output channels; empty: of itself. A model
// may have hundreds of thousands of experts, whose names differ by a number: of a stack only the
// members of one expert are kept, and the others are made of them when they are asked for.
class FusedMembers {
 public:
  FusedMembers() = default;
  FusedMembers(std::initializer_list<FusedMember> members)
      : FusedMembers(std::vector<FusedMember>(members)) {}
  // `experts`: of a stack, expert after expert; 0: it is none.
  explicit FusedMembers(std::vector<FusedMember> members, uint64_t experts = 0);

  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size() * repeats_; }
  FusedMember operator[](size_t index) const;
  std::vector<FusedMember> All() const { return {begin(), end()}; }

  // The output channels that are `module`'s; nullopt if it is not in it.
  std::optional<ChannelRange> ChannelsOf(std::string_view module) const;

  class Iterator {
   public:
    using iterator_concept = std::forward_iterator_tag;
    using iterator_category = std::input_iterator_tag;
    using value_type = FusedMember;
    using difference_type = std::ptrdiff_t;
    using reference = FusedMember;
    using pointer = void;

    Iterator() = default;
    Iterator(const FusedMembers& members, size_t index) : members_(&members), index_(index) {}

    FusedMember operator*() const { return (*members_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    Iterator operator++(int) { return {*members_, index_++}; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const FusedMembers* members_ = nullptr;
    size_t index_ = 0;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

  friend bool operator==(const FusedMembers& a, const FusedMembers& b);

 private:
  // A member of every expert: BEFORE number AFTER. Where there is but one, its name is `before`.
  struct Row {
    std::string before;
    std::string after;
    uint64_t n = 0;
  };

  std::vector<Row> rows_;
  size_t repeats_ = 1;
};

// Those of a module of the source; none: it has no members.
FusedMembers FusedMembersOf(const QuantizedLinear& linear);

}  // namespace prepack
