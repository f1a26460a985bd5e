#include "prepack/check/channel_orders.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace prepack {
namespace {

constexpr std::array<ChannelOrder, 18> kWrongOrders = {{
    {.name = "reversed by eights", .block = 8, .places = {7, 6, 5, 4, 3, 2, 1, 0}},
    {.name = "reversed by fours", .block = 4, .places = {3, 2, 1, 0}},
    {.name = "reversed by sixteens",
     .block = 16,
     .places = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
    {.name = "reversed in pairs by eights",
     .block = 16,
     .places = {14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1}},
    {.name = "swapped in pairs", .block = 2, .places = {1, 0}},
    {.name = "swapped by twos", .block = 4, .places = {2, 3, 0, 1}},
    {.name = "interleaved as AWQ does", .block = 8, .places = {0, 2, 4, 6, 1, 3, 5, 7}},
    {.name = "interleaved the other way", .block = 8, .places = {0, 4, 1, 5, 2, 6, 3, 7}},
    {.name = "interleaved in pairs",
     .block = 16,
     .places = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}},
    {.name = "moved by half of them", .by_half = true},
    {.name = "moved by one", .moved = 1},
    {.name = "moved back by one", .moved = -1},
    {.name = "moved by four", .moved = 4},
    {.name = "moved back by four", .moved = -4},
    {.name = "moved by eight", .moved = 8},
    {.name = "moved back by eight", .moved = -8},
    {.name = "moved by sixteen", .moved = 16},
    {.name = "moved back by sixteen", .moved = -16},
}};

class Correlation {
 public:
  void Add(double x, double y) {
    ++count_;
    sum_x_ += x;
    sum_y_ += y;
    squares_x_ += x * x;
    squares_y_ += y * y;
    products_ += x * y;
  }
  double Value() const {
    if (count_ < 2) return 0;
    const double variances =
        (squares_x_ - sum_x_ * sum_x_ / count_) * (squares_y_ - sum_y_ * sum_y_ / count_);
    return variances > 0 ? (products_ - sum_x_ * sum_y_ / count_) / std::sqrt(variances) : 0;
  }

 private:
  double count_ = 0;
  double sum_x_ = 0;
  double sum_y_ = 0;
  double squares_x_ = 0;
  double squares_y_ = 0;
  double products_ = 0;
};

}  // namespace

std::span<const ChannelOrder> WrongOrders() {
  return kWrongOrders;
}

std::vector<uint32_t> PlacesOf(const ChannelOrder& order, size_t count) {
  std::vector<uint32_t> places(count);
  std::iota(places.begin(), places.end(), 0U);
  if (order.block > 1) {
    for (size_t i = 0; i < count / order.block * order.block; ++i) {
      places[i] = static_cast<uint32_t>(i - i % order.block + order.places[i % order.block]);
    }
    return places;
  }
  const auto size = static_cast<ptrdiff_t>(count);
  if (size == 0) return places;
  const ptrdiff_t by = order.by_half ? size / 2 : order.moved;
  std::rotate(places.begin(), places.begin() + ((by % size) + size) % size, places.end());
  return places;
}

std::vector<float> RanksOf(std::span<const float> values) {
  std::vector<uint32_t> sorted(values.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::ranges::stable_sort(sorted, {}, [&](uint32_t i) { return values[i]; });
  std::vector<float> ranks(values.size());
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && values[sorted[end]] == values[sorted[i]]) ++end;
    const float rank = static_cast<float>(i + end - 1) / 2;
    for (; i < end; ++i) ranks[sorted[i]] = rank;
  }
  return ranks;
}

MovedCorrelation CorrelateMoved(std::span<const float> a, std::span<const float> b,
                                std::span<const uint32_t> places) {
  Correlation stored;
  Correlation moved;
  size_t count = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == i) continue;
    ++count;
    stored.Add(a[i], b[i]);
    moved.Add(a[i], b[places[i]]);
  }
  return {.stored = stored.Value(), .moved = moved.Value(), .count = count};
}

double Correlate(std::span<const float> a, std::span<const float> b) {
  Correlation correlation;
  for (size_t i = 0; i < a.size(); ++i) correlation.Add(a[i], b[i]);
  return correlation.Value();
}

}  // namespace prepack
