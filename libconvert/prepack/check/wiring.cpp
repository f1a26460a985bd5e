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

// As many as are enough to tell one order from another.
NeuronVectors Some(const NeuronVectors& vectors) {
  constexpr uint64_t kSome = 64;
  const uint64_t neurons = std::min(kSome, vectors.neurons);
  const auto first = vectors.values.begin();
  return {.neurons = neurons,
          .channels = vectors.channels,
          .values = {first, first + static_cast<ptrdiff_t>(neurons * vectors.channels)},
          .lengths = {}};
}

// The order of a's neurons or channels in which they go with b; nullopt where none of them is it.
std::optional<std::string> WiredOrder(const Angles& angles) {
  const NeuronVectors a = Some(*angles.a);
  const NeuronVectors b = Some(*angles.b);
  std::optional<std::string> found;
  double highest = kWiredOrder;
  for (const bool neurons : {false, true}) {
    for (const ChannelOrder& order : WrongOrders()) {
      // Half of all neurons away is not among those that were read.
      if (neurons && order.by_half) continue;
      const NeuronVectors reordered = Reordered(a, order, neurons);
      const double wiring = angles.Of(MeanCosine(reordered, b, 0));
      if (wiring < highest) continue;
      highest = wiring;
      found = fmt::format("{} {} they do, by {:.1f}", neurons ? "neurons" : "hidden channels",
                          order.name, wiring);
    }
  }
  return found;
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
    if (other == last && without[i] < kWired) continue;  // one is enough to say no
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
  if (angles.wiring >= kWired) return std::nullopt;
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
  wiring.fault = JudgeExchange(mlp);
  return wiring;
}

}  // namespace prepack
