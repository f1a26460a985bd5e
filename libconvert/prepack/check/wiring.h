#pragma once

// Which neuron is which? The modules of an MLP share its neurons: row i of gate_proj, row i of
// up_proj and column i of down_proj belong to neuron i, and all three are vectors over the same
// hidden channels.
//
//             hidden               hidden             neurons
//          ┌──────────┐         ┌──────────┐         ┌───┬─┬──┐
//     gate │          │      up │          │    down │   │i│  │ hidden
//   neuron ├────i─────┤         ├────i─────┤         │   │ │  │
//          └──────────┘         └──────────┘         └───┴─┴──┘
//
// Training wires a neuron as a whole: the angles between its three vectors are further from right
// angles than those between vectors of different neurons, by a factor of 1.4 to 11 in trained
// models and 1 in others. If the rows, columns or hidden channels of one module are in another
// order, its two angles lose this property and the third one keeps it. The same is true of the rows
// of v_proj and the columns of o_proj.
//
// Two symmetries tell gate and up apart. First, scaling row i of up by a factor and column i of
// down by its inverse changes nothing, and weight decay makes their lengths equal; the length of
// row i of gate is not tied in this way, because the path from gate to down is not linear. Second,
// flipping the signs of row i of up and column i of down changes nothing either, except the sign of
// the angle between gate and down: those angles are therefore acute as often as obtuse, while those
// between up and down may all be acute.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

// How much further from right angles those of one neuron are than others. Of 128 neurons, it
// deviates by 0.07 from 1 where nothing is wired up.
inline constexpr double kWired = 1.3;      // below: they do not go together as stored
inline constexpr double kNotWired = 1.2;   // below: nothing of it is left
inline constexpr double kWellWired = 2.5;  // of the two others, so that the third is alien
// How far above 1, over the root of the number of neurons, shows another order. It is 6.4 standard
// errors, because |cosines| of unrelated vectors deviate by 0.75 of their mean. Some of the neurons
// only have to come near to it.
inline constexpr double kWiredOrder = 4.8;
inline constexpr double kMaybeWiredOrder = 1.25;
// If an order leaves some of the wiring, the right one has this many times as much of it, and for
// no other module less. Of sound modules, wrong orders take away half and more.
inline constexpr double kBetterOrder = 1.5;
inline constexpr double kNoWorseOrder = 0.9;
inline constexpr double kMaybeBetterOrder = 1.2;
// Correlations of the ranks of the lengths: 0.3 to 0.96 of up with down in trained models. For gate
// to be up, its own has to be so high, and so much higher.
inline constexpr double kLengthCorrelation = 0.5;
inline constexpr double kLengthGain = 0.3;
// The mean cosine, in its standard errors: for gate to be up, and more than that of up.
inline constexpr double kSignErrors = 6;
inline constexpr double kSignGain = 3;

// Vectors over the hidden channels, one after the other.
struct NeuronVectors {
  uint64_t neurons = 0;
  uint64_t channels = 0;
  std::vector<float> values;
  std::vector<float> lengths;  // before they were made 1

  std::span<const float> Of(uint64_t neuron) const {
    return std::span(values).subspan(neuron * channels, channels);
  }
};

// Takes vectors one after the other, and makes their lengths 1.
NeuronVectors MakeNeuronVectors(uint64_t neurons, uint64_t channels, std::vector<float> values);

// Mean |cosine| of the vectors of a neuron, in those of different neurons.
double WiringOf(const NeuronVectors& a, const NeuronVectors& b);

// What is wrong with one of several modules; the message says what it does not go with.
struct WiringFault {
  size_t module = 0;  // index
  std::string message;
  bool exchanged = false;    // with its sibling
  bool needs_peers = false;  // counts only where the same modules of other layers go together
};

// How an MLP goes together: by two modules each, in the place of the third.
struct MlpWiring {
  std::array<double, 3> without{};
  std::optional<WiringFault> fault;

  // Whether a module goes with both others.
  bool IsWired(size_t module) const {
    return without[(module + 1) % 3] >= kWired && without[(module + 2) % 3] >= kWired;
  }
};

struct NamedVectors {
  std::string_view name;  // "gate_proj"
  const NeuronVectors* vectors = nullptr;
};

// Two modules of the same neurons.
std::optional<WiringFault> JudgePair(const std::array<NamedVectors, 2>& pair);
// gate, up and down.
MlpWiring JudgeMlp(const std::array<NamedVectors, 3>& mlp);

}  // namespace prepack
