#ifndef PREPACK_CHECK_MOMENTS_H_
#define PREPACK_CHECK_MOMENTS_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace prepack {

// The median of at least one value: the mean of the middle two if their number is even.
inline double Median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Numbers that are counted while they pass: how many, their sum and that of their squares.

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
