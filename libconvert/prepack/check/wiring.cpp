// Measures angles between the vectors of neurons (the drawing is in wiring.h). A figure of 1 is
// what vectors of different neurons have by chance.

#include "prepack/check/wiring.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/check/channel_orders.h"
#include "prepack/kernels/kernels.h"
#include "prepack/measure/module_statistics.h"

namespace prepack {
namespace {

// Neurons this far apart are compared, to measure angles between vectors that are not wired.
constexpr std::array<uint64_t, 3> kApart = {5, 23, 41};

double Dot(std::span<const float> a, std::span<const float> b) {
  return Kernels().dot_floats(a.data(), b.data(), a.size());
}

// `a`: NeuronVectors, or those in another order.
template <typename Vectors>
double MeanCosine(const Vectors& a, const NeuronVectors& b, uint64_t apart) {
  double sum = 0;
  for (uint64_t i = 0; i < a.neurons; ++i) {
    sum += std::abs(Dot(a.Of(i), b.Of((i + apart) % b.neurons)));
  }
  return sum / static_cast<double>(a.neurons);
}

// A figure above this is not chance.
double OrderBar(uint64_t neurons) {
  return 1 + kWiredOrder / std::sqrt(static_cast<double>(neurons));
}

// Two sets of vectors, and how well they match.
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

// Vectors with their neurons or their channels in another order, made one by one.
class ReorderedVectors {
 public:
  ReorderedVectors(const NeuronVectors& vectors, const ChannelOrder& order, bool of_neurons)
      : neurons(vectors.neurons),
        vectors_(vectors),
        of_neurons_(of_neurons),
        places_(PlacesOf(order, of_neurons ? vectors.neurons : vectors.channels)),
        row_(vectors.channels) {}

  // It stays until the next one.
  std::span<const float> Of(uint64_t neuron) const {
    if (of_neurons_) return vectors_.Of(places_[neuron]);
    std::ranges::transform(
        places_, row_.begin(),
        [from = vectors_.Of(neuron).data()](uint32_t place) { return from[place]; });
    return row_;
  }

  NeuronVectors All() const {
    NeuronVectors all = vectors_;
    for (uint64_t i = 0; i < neurons; ++i) {
      std::ranges::copy(Of(i), &all.values[i * all.channels]);
    }
    return all;
  }

  const uint64_t neurons;

 private:
  const NeuronVectors& vectors_;
  bool of_neurons_;
  std::vector<uint32_t> places_;
  mutable std::vector<float> row_;
};

// As many as suffice to tell one order from another: the first ones, or some from everywhere,
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

// The order of a's neurons or channels in which they match b; nullopt if there is none. Some of the
// neurons suggest an order, all of them confirm it.
std::optional<std::string> WiredOrder(const Angles& angles) {
  const ChannelOrder* best = nullptr;
  bool of_neurons = false;
  double highest = 0;
  for (const bool neurons : {false, true}) {
    const NeuronVectors a = Some(*angles.a, !neurons);
    const NeuronVectors b = Some(*angles.b, !neurons);
    for (const ChannelOrder& order : WrongOrders()) {
      // Neurons half of all away are not among those that were read.
      if (neurons && order.by_half) continue;
      const double wiring = angles.Of(MeanCosine(ReorderedVectors(a, order, neurons), b, 0));
      if (wiring <= highest) continue;
      highest = wiring;
      best = &order;
      of_neurons = neurons;
    }
  }
  if (highest < kMaybeWiredOrder) return std::nullopt;
  const NeuronVectors reordered = ReorderedVectors(*angles.a, *best, of_neurons).All();
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

// The order in which the hidden channels of `a` match those of all `others` far better than as
// stored. Orders that leave some channels in place also leave some of the wiring intact.
std::optional<std::string> BetterOrder(const NamedVectors& a,
                                       std::span<const NamedVectors> others) {
  const NeuronVectors some = Some(*a.vectors, true);
  // Of each of the others: those that are compared with `some`, and how well they match as stored.
  std::vector<std::pair<NeuronVectors, double>> as_stored;
  for (const NamedVectors& other : others) {
    NeuronVectors of_other = Some(*other.vectors, true);
    const double cosine = MeanCosine(some, of_other, 0);
    as_stored.emplace_back(std::move(of_other), cosine);
  }
  for (const ChannelOrder& order : WrongOrders()) {
    if (!IsPartial(order)) continue;
    const ReorderedVectors reordered(some, order, false);
    const bool maybe = std::ranges::any_of(as_stored, [&](const auto& other) {
      return MeanCosine(reordered, other.first, 0) > kMaybeBetterOrder * other.second;
    });
    if (!maybe) continue;
    const NeuronVectors all = ReorderedVectors(*a.vectors, order, false).All();
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
          "its neurons match those of {} by {:.1f} as stored, but with its hidden channels {} by "
          "{:.1f}",
          other.name, stored, order.name, better);
    }
    if (gain > kBetterOrder && loss > kNoWorseOrder) return message;
  }
  return std::nullopt;
}

std::string Describe(std::string_view a, std::string_view b, const Angles& angles,
                     std::string_view order) {
  return fmt::format(
      "its neurons do not match those of {} as stored ({:.2f} for {} and {}, 1 for those of "
      "different models), but with its {}",
      b, angles.wiring, a, b, order);
}

// The mean cosine, in standard errors.
double SignErrors(const NeuronVectors& a, const NeuronVectors& b) {
  Moments<double> cosines;
  for (uint64_t i = 0; i < a.neurons; ++i) cosines.Add(Dot(a.Of(i), b.Of(i)));
  const double error = cosines.Deviation() / std::sqrt(cosines.count);
  return error > 0 ? cosines.Mean() / error : 0;
}

constexpr size_t kGate = 0;
constexpr size_t kUp = 1;
constexpr size_t kDown = 2;

// Whether module i matches neither of the others, and why.
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
  // Only a factor lies between up and down, so a module that matches gate also matches up.
  return WiringFault{.module = i,
                     .message = fmt::format(
                         "its neurons are not those of {} and {}: these match each other by "
                         "{:.1f}, but the module matches them by {:.2f} and {:.2f} (1: not at all)",
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
      .message = fmt::format("it is really the {1}: the lengths of its neurons correlate with "
                             "those of {2} by {3:.2f}, those of the {1} by {4:.2f}; mean cosines "
                             "of {5:.1f} and {6:.1f} standard errors",
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
  // If no two match, the model was never trained, unless up or down is wrong.
  const bool trained =
      std::ranges::any_of(wiring.without, [](double without) { return without >= kWired; });
  if (!trained) {
    wiring.fault = JudgeAlien(mlp, wiring.without, kUp);
    return wiring;
  }
  // Up before down before gate: a module that matches no other is more likely to be up than gate.
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
