#ifndef PREPACK_CHECK_MEDIAN_H_
#define PREPACK_CHECK_MEDIAN_H_

#include <algorithm>
#include <vector>

namespace prepack {

// Of at least one value; the mean of both in the middle, where there are two.
inline double Median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace prepack

#endif  // PREPACK_CHECK_MEDIAN_H_
