#include "prepack/check/wiring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "prepack/check/channel_orders.h"
#include "prepack/check/moments.h"

namespace prepack {
namespace {

// Neurons so far apart are compared to see what angles are like where nothing is wired up.
constexpr std::array<uint64_t, 3> kApart = {5, 23, 41};

// In eight sums, so that compilers make vector instructions of it.
double Dot(std::span<const float> a, std::span<const float> b) {
  std::array<float, 8> sums{};
  size_t i = 0;
  for (; i + 8 <= a.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  }
  double sum = 0;
  for (const float part : sums) sum += static_cast<double>(part);
  for (; i < a.size(); ++i) sum += static_cast<double>(a[i] * b[i]);
  return sum;
}

double MeanCosine(const NeuronVectors& a, const NeuronVectors& b, uint64_t apart) {
  double sum = 0;
  for (uint64_t i = 0; i < a.neurons; ++i) {
    sum += std::abs(Dot(a.Of(i), b.Of((i + apart) % b.neurons)));
  }
  return sum / static_cast<double>(a.neurons);
}

// Above it, an order is no chance.
double OrderBar(uint64_t neurons) {
  return 1 + kWiredOrder / std::sqrt(static_cast<double>(neurons));
}

// Two sets of vectors, and how they go together.
struct Angles {
  const NeuronVectors* a = nullptr;
  const NeuronVectors* b = nullptr;
  double others = 0;  // mean |cosine| of different neurons
  double wiring = 0;

  double Of(double mean_cosine) const { return others > 0 ? mean_cosine / others : 1; }
};

Angles Measure(const NeuronVectors& a, const NeuronVectors& b) {
  Angles angles{.a = &a, .b = &b};
  for (const uint64_t apart : kApart) angles.others += MeanCosine(a, b, apart) / kApart.size();
  angles.wiring = angles.Of(MeanCosine(a, b, 0));
  return angles;
}

// The vectors with their neurons or their channels in another order.
NeuronVectors Reordered(const NeuronVectors& vectors, const ChannelOrder& order, bool neurons) {
  NeuronVectors result = vectors;
  const std::vector<uint32_t> places =
      PlacesOf(order, neurons ? vectors.neurons : vectors.channels);
  for (uint64_t i = 0; i < vectors.neurons; ++i) {
    const std::span<const float> from = vectors.Of(neurons ? places[i] : i);
    float* to = &result.values[i * vectors.channels];
    for (uint64_t k = 0; k < vectors.channels; ++k) to[k] = from[neurons ? k : places[k]];
  }
  return result;
}

// As many as are enough to tell one order from another: the first ones, or some from everywhere,
// because heads differ.
NeuronVectors Some(const NeuronVectors& vectors, bool from_everywhere) {
  constexpr uint64_t kSome = 64;
  const uint64_t neurons = std::min(kSome, vectors.neurons);
  const uint64_t step = from_everywhere ? vectors.neurons / std::max<uint64_t>(neurons, 1) : 1;
  NeuronVectors some{.neurons = neurons, .channels = vectors.channels, .values = {}, .lengths = {}};
  some.values.reserve(neurons * vectors.channels);
  for (uint64_t i = 0; i < neurons; ++i) {
    const std::span<const float> from = vectors.Of(i * step);
    some.values.insert(some.values.end(), from.begin(), from.end());
  }
  return some;
}

// The order of a's neurons or channels in which they go with b; nullopt where none of them is it.
// Some of the neurons tell which order it may be, all of them whether it is.
std::optional<std::string> WiredOrder(const Angles& angles) {
  const ChannelOrder* best = nullptr;
  bool of_neurons = false;
  double highest = 0;
  for (const bool neurons : {false, true}) {
    const NeuronVectors a = Some(*angles.a, !neurons);
    const NeuronVectors b = Some(*angles.b, !neurons);
    for (const ChannelOrder& order : WrongOrders()) {
      // Half of all neurons away is not among those that were read.
      if (neurons && order.by_half) continue;
      const NeuronVectors reordered = Reordered(a, order, neurons);
      const double wiring = angles.Of(MeanCosine(reordered, b, 0));
      if (wiring <= highest) continue;
      highest = wiring;
      best = &order;
      of_neurons = neurons;
    }
  }
  if (highest < kMaybeWiredOrder) return std::nullopt;
  const NeuronVectors reordered = Reordered(*angles.a, *best, of_neurons);
  const double wiring = WiringOf(reordered, *angles.b);
  if (wiring < OrderBar(reordered.neurons)) return std::nullopt;
  return fmt::format("{} {} they do, by {:.1f}", of_neurons ? "neurons" : "hidden channels",
                     best->name, wiring);
}

// Whether some channels keep their places.
bool IsPartial(const ChannelOrder& order) {
  for (size_t i = 0; i < order.block; ++i) {
    if (order.block > 1 && order.places[i] == i) return true;
  }
  return false;
}

// The order in which the hidden channels of `a` go with those of all `others` far better than as
// stored. Orders that leave some channels where they are leave some of the wiring, too.
std::optional<std::string> BetterOrder(const NamedVectors& a,
                                       std::span<const NamedVectors> others) {
  const NeuronVectors some = Some(*a.vectors, true);
  for (const ChannelOrder& order : WrongOrders()) {
    if (!IsPartial(order)) continue;
    const NeuronVectors reordered = Reordered(some, order, false);
    const bool maybe = std::ranges::any_of(others, [&](const NamedVectors& other) {
      const NeuronVectors of_other = Some(*other.vectors, true);
      return MeanCosine(reordered, of_other, 0) > kMaybeBetterOrder * MeanCosine(some, of_other, 0);
    });
    if (!maybe) continue;
    const NeuronVectors all = Reordered(*a.vectors, order, false);
    double gain = 0;
    double loss = 1;
    std::string message;
    for (const NamedVectors& other : others) {
      const double stored = WiringOf(*a.vectors, *other.vectors);
      const double better = WiringOf(all, *other.vectors);
      loss = std::min(loss, better / stored);
      if (better < OrderBar(all.neurons) || better / stored < gain) continue;
      gain = better / stored;
      message = fmt::format(
          "its neurons go with those of {} as stored by {:.1f}, and with its hidden channels {} "
          "by {:.1f}",
          other.name, stored, order.name, better);
    }
    if (gain > kBetterOrder && loss > kNoWorseOrder) return message;
  }
  return std::nullopt;
}

std::string Describe(std::string_view a, std::string_view b, const Angles& angles,
                     std::string_view order) {
  return fmt::format(
      "its neurons do not go with those of {} as stored ({:.2f} for {} and {}, 1 for those of "
      "different models), but with its {}",
      b, angles.wiring, a, b, order);
}

// Mean cosine in standard errors.
double SignErrors(const NeuronVectors& a, const NeuronVectors& b) {
  Moments<double> cosines;
  for (uint64_t i = 0; i < a.neurons; ++i) cosines.Add(Dot(a.Of(i), b.Of(i)));
  const double error = cosines.Deviation() / std::sqrt(cosines.count);
  return error > 0 ? cosines.Mean() / error : 0;
}

constexpr size_t kGate = 0;
constexpr size_t kUp = 1;
constexpr size_t kDown = 2;

// Whether module i goes with neither of the others, and why.
std::optional<WiringFault> JudgeAlien(const std::array<NamedVectors, 3>& mlp,
                                      const std::array<double, 3>& without, size_t i) {
  const size_t next = (i + 1) % 3;
  const size_t last = (i + 2) % 3;
  if (without[next] >= kWired || without[last] >= kWired) return std::nullopt;
  for (const size_t other : {next, last}) {
    const Angles angles = Measure(*mlp[i].vectors, *mlp[other].vectors);
    const std::optional<std::string> order = WiredOrder(angles);
    if (!order) continue;
    return WiringFault{.module = i,
                       .message = Describe(mlp[i].name, mlp[other].name, angles, *order)};
  }
  if (without[next] >= kNotWired || without[last] >= kNotWired || without[i] < kWellWired) {
    return std::nullopt;
  }
  // Between up and down nothing but a factor comes, so what goes with gate goes with up.
  return WiringFault{.module = i,
                     .message = fmt::format(
                         "its neurons are not those of {} and {}: these go together by {:.1f}, "
                         "and it with them by {:.2f} and {:.2f} (1: not at all)",
                         mlp[next].name, mlp[last].name, without[i], without[last], without[next]),
                     .needs_peers = i != kUp};
}

std::optional<WiringFault> JudgeExchange(const std::array<NamedVectors, 3>& mlp) {
  const auto& [gate, up, down] = mlp;
  const std::vector<float> down_ranks = RanksOf(down.vectors->lengths);
  const double of_gate = Correlate(RanksOf(gate.vectors->lengths), down_ranks);
  const double of_up = Correlate(RanksOf(up.vectors->lengths), down_ranks);
  const double gate_sign = std::abs(SignErrors(*gate.vectors, *down.vectors));
  const double up_sign = std::abs(SignErrors(*up.vectors, *down.vectors));
  const bool by_length = of_gate > kLengthCorrelation && of_gate > of_up + kLengthGain;
  const bool by_sign = gate_sign > kSignErrors && gate_sign > up_sign + kSignGain;
  const bool not_by_sign = up_sign > kSignErrors && up_sign > gate_sign + kSignGain;
  const bool not_by_length = of_up > kLengthCorrelation && of_up > of_gate + kLengthGain;
  if (!(by_length && !not_by_sign) && !(by_sign && !not_by_length)) return std::nullopt;
  return WiringFault{
      .module = 0,
      .message = fmt::format(
          "it is the {1}: the lengths of its neurons go with those of {2} by {3:.2f}, those of the "
          "{1} by {4:.2f}; mean cosines of {5:.1f} and {6:.1f} standard errors",
          gate.name, up.name, down.name, of_gate, of_up, gate_sign, up_sign),
      .exchanged = true};
}

}  // namespace

NeuronVectors MakeNeuronVectors(uint64_t neurons, uint64_t channels, std::vector<float> values) {
  NeuronVectors vectors{
      .neurons = neurons, .channels = channels, .values = std::move(values), .lengths = {}};
  vectors.lengths.resize(neurons);
  for (uint64_t i = 0; i < neurons; ++i) {
    const auto length = static_cast<float>(std::sqrt(Dot(vectors.Of(i), vectors.Of(i))));
    vectors.lengths[i] = length;
    if (!(length > 0)) continue;
    float* values_of = &vectors.values[i * channels];
    for (uint64_t k = 0; k < channels; ++k) values_of[k] /= length;
  }
  return vectors;
}

double WiringOf(const NeuronVectors& a, const NeuronVectors& b) {
  return Measure(a, b).wiring;
}

std::optional<WiringFault> JudgePair(const std::array<NamedVectors, 2>& pair) {
  const Angles angles = Measure(*pair[0].vectors, *pair[1].vectors);
  if (angles.wiring >= kWired) {
    const std::optional<std::string> better = BetterOrder(pair[0], std::span(pair).subspan(1));
    if (!better) return std::nullopt;
    return WiringFault{.module = 0, .message = *better};
  }
  const std::optional<std::string> order = WiredOrder(angles);
  if (!order) return std::nullopt;
  return WiringFault{.module = 0, .message = Describe(pair[0].name, pair[1].name, angles, *order)};
}

MlpWiring JudgeMlp(const std::array<NamedVectors, 3>& mlp) {
  MlpWiring wiring;
  for (size_t i = 0; i < mlp.size(); ++i) {
    wiring.without[i] = WiringOf(*mlp[(i + 1) % 3].vectors, *mlp[(i + 2) % 3].vectors);
  }
  // Where no two go together, the model was never trained, unless it is up or down that is wrong.
  const bool trained =
      std::ranges::any_of(wiring.without, [](double without) { return without >= kWired; });
  if (!trained) {
    wiring.fault = JudgeAlien(mlp, wiring.without, kUp);
    return wiring;
  }
  // Up before down before gate: what goes with no other is more likely to be up than gate.
  for (const size_t i : {kUp, kDown, kGate}) {
    wiring.fault = JudgeAlien(mlp, wiring.without, i);
    if (wiring.fault) return wiring;
  }
  for (const size_t i : {kUp, kDown, kGate}) {
    const std::array<NamedVectors, 2> others = {mlp[(i + 1) % 3], mlp[(i + 2) % 3]};
    const std::optional<std::string> better = BetterOrder(mlp[i], others);
    if (!better) continue;
    wiring.fault = WiringFault{.module = i, .message = *better};
    return wiring;
  }
  wiring.fault = JudgeExchange(mlp);
  return wiring;
}

}  // namespace prepack
