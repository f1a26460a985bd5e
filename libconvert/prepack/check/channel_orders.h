#pragma once

// The orders that channels have after the usual mistakes: words read from the wrong end, nibbles
// swapped, the interleaving of another format, rows that were moved.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/check/check.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/model/scheme.h"

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

// The correlation of a[i] with b[i]; 0 if one of them is constant.
double Correlate(std::span<const float> a, std::span<const float> b);

// Modules that read the same input (q, k, v; gate, up) have strong and weak input channels in
// common, or the strong ones of one are the weak ones of the other. Where they have so only after
// the channels of one are put into another order, that one was packed in it. Of models that were
// never trained, whose channels have nothing in common, this says nothing.

struct RowNumbers;

// Correlation of the ranks of input channels' energies, either way: 0.2 to 0.9 in trained models.
// That of a wrong order stays below 0.15, or 3 standard deviations, over the channels that the
// order moves; to be reported it has to be so high, and so much higher than that of the stored one.
inline constexpr double kOrderCorrelation = 0.25;
inline constexpr double kOrderGain = 0.12;
inline constexpr double kOrderDeviations = 5.5;

// Energies by the place of an input channel in words of 32 bits, or three of them for 3 bits, are
// alike: places of one word differ by less than so much (median of ln), but where they were read
// from parts of other codes. So many standard errors on top.
inline constexpr double kPlaceGain = 0.45;
inline constexpr double kPlaceErrors = 8;

// Whether the module has siblings by whose input channels it is judged.
bool HasSiblings(std::string_view module);

// Σ weight² of each input channel, in the order of the checkpoint, over rows that were read.
// `order`: QuantizedLinear::KOrder.
std::vector<float> ColumnEnergies(const Scheme& scheme, uint64_t k, uint64_t rows,
                                  const RowNumbers& numbers, const InputOrder& order);

// `energies`: in the order of `modules`; empty where not measured. Findings are appended to those
// of the modules.
void JudgeSiblings(std::vector<ModuleCheck>& modules,
                   const std::vector<std::vector<float>>& energies);

}  // namespace prepack
