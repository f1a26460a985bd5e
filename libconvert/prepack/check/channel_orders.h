#ifndef PREPACK_CHECK_CHANNEL_ORDERS_H_
#define PREPACK_CHECK_CHANNEL_ORDERS_H_

// The orders in which channels lie after the usual mistakes: words read from the wrong end, nibbles
// swapped, the interleaving of another format, rows that were moved.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace prepack {

// Place i of each run of `block` places holds channel places[i] of the run, after all have moved by
// `moved`.
struct ChannelOrder {
  std::string_view name;  // "they go together …"
  size_t block = 1;
  std::array<uint8_t, 16> places{};
  ptrdiff_t moved = 0;
  bool by_half = false;  // moved by half of them, too
};

std::span<const ChannelOrder> WrongOrders();

// Which channel lies at each of `count` places. Places behind the last whole run keep theirs.
std::vector<uint32_t> PlacesOf(const ChannelOrder& order, size_t count);

// The place of each value among all, from 0 for the lowest; equal values share the mean of theirs.
// Correlations of ranks do not depend on a few channels that stand out.
std::vector<float> RanksOf(std::span<const float> values);

// Correlation of a[i] with b[places[i]] over all i that the order moves, and that of a[i] with b[i]
// over the same.
struct MovedCorrelation {
  double stored = 0;
  double moved = 0;
  size_t count = 0;
};
MovedCorrelation CorrelateMoved(std::span<const float> a, std::span<const float> b,
                                std::span<const uint32_t> places);

// Of a[i] with b[i]; 0 where one of them is constant.
double Correlate(std::span<const float> a, std::span<const float> b);

}  // namespace prepack

#endif  // PREPACK_CHECK_CHANNEL_ORDERS_H_
