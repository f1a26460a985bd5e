#ifndef PREPACK_CHECK_HIDDEN_CHANNELS_H_
#define PREPACK_CHECK_HIDDEN_CHANNELS_H_

// The hidden channels of a model, by everything that a layer stores about them. Modules that read
// the hidden state (q, k, v, gate, up), the norms before and after them, and the embedding have
// strong and weak channels. Two of them may have little in common, so channel_orders.h, which
// compares pairs, can miss a module. But all others together predict which channels of a module are
// strong: a linear regression on their ranks predicts the ranks of the module with a multiple
// correlation of 0.2 to 0.93 in trained models. If it does so only after the channels of the module
// are put into another order, the module was packed in that order.
//
// Norms and embedding are not packed, so this works even if all modules are wrong in the same way.

#include <vector>

#include "prepack/base/status.h"
#include "prepack/check/check.h"
#include "prepack/container/checkpoint.h"

namespace prepack {

// Multiple correlation with a wrong order: at most 0.29 in 240 modules of trained models, which are
// as stored told by 0.2 to 0.93. To be reported, an order has to reach this, after what as many
// unrelated columns would explain was taken off, and to gain so much on the stored one.
inline constexpr double kHiddenCorrelation = 0.36;
inline constexpr double kHiddenGain = 0.12;
// Unrelated columns explain a share of their number in that of the channels, more or less: this
// many of its standard deviations above it is not chance.
inline constexpr double kHiddenDeviations = 5.5;
inline constexpr size_t kMinHiddenChannels = 128;
inline constexpr size_t kMostHiddenChannels = 65536;
// How many bytes of the embedding are looked at.
inline constexpr uint64_t kEmbeddingBytes = uint64_t{1} << 20;

// `energies`: in the order of `modules`; empty where not measured (ColumnEnergies). Findings are
// appended to those of the modules. Errors are those of reading.
//
// A layer at a time, which takes no more than MemoryOfHiddenChannels for `k` input channels.
Status JudgeHiddenChannels(const Checkpoint& checkpoint,
                           const std::vector<std::vector<float>>& energies,
                           std::vector<ModuleCheck>& modules);

constexpr uint64_t MemoryOfHiddenChannels(uint64_t k) {
  return kEmbeddingBytes + 24 * k * sizeof(double);
}

}  // namespace prepack

#endif  // PREPACK_CHECK_HIDDEN_CHANNELS_H_
