#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace prepack {

// How often each of the 256 values of a byte occurs. A report keeps several of these for each of
// maybe 100,000 modules, and most use a few neighbouring values, as codes of 4 bits or exponents of
// scales do: only the run from the least to the greatest value that was counted takes memory.
template <typename Count>
class ByteCounts {
 public:
  static constexpr size_t kValues = 256;

  Count operator[](size_t value) const {
    return value - first_ < counts_.size() ? counts_[value - first_] : Count{0};
  }

  // `value` is below kValues.
  void Add(size_t value, Count count = 1) {
    if (counts_.empty()) first_ = value;
    if (value < first_) {
      counts_.insert(counts_.begin(), first_ - value, Count{0});
      first_ = value;
    }
    if (value - first_ >= counts_.size()) counts_.resize(value - first_ + 1);
    counts_[value - first_] += count;
  }

  void Merge(const ByteCounts& other) {
    for (size_t i = 0; i < other.counts_.size(); ++i) {
      if (other.counts_[i] != 0) Add(other.first_ + i, other.counts_[i]);
    }
  }

  std::array<Count, kValues> All() const {
    std::array<Count, kValues> all{};
    for (size_t i = 0; i < counts_.size(); ++i) all[first_ + i] = counts_[i];
    return all;
  }

 private:
  size_t first_ = 0;
  std::vector<Count> counts_;  // from value first_ on
};

}  // namespace prepack
