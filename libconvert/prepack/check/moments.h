#ifndef PREPACK_CHECK_MOMENTS_H_
#define PREPACK_CHECK_MOMENTS_H_

// Numbers that are counted while they pass: how many, their sum and that of their squares.

#include <algorithm>
#include <cmath>

namespace prepack {

template <typename Count>
struct Moments {
  Count count = 0;
  Count sum = 0;
  Count squares = 0;

  void Add(Count value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  void Add(const Moments& other) {
    count += other.count;
    sum += other.sum;
    squares += other.squares;
  }
  double Mean() const {
    return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
  }
  double Variance() const {
    if (count == 0) return 0;
    return std::max(0.0,
                    static_cast<double>(squares) / static_cast<double>(count) - Mean() * Mean());
  }
  double Deviation() const { return std::sqrt(Variance()); }
};

}  // namespace prepack

#endif  // PREPACK_CHECK_MOMENTS_H_
