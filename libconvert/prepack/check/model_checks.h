#pragma once

// The shapes of modules against config.json: hidden_size, the *intermediate_size fields,
// num_attention_heads, num_key_value_heads, head_dim and vocab_size, there or in text_config or
// llm_config. It checks only modules with the usual names (q_proj … down_proj, embed_tokens,
// lm_head) below the usual decoder prefixes. A field that is absent, or is a list with one value
// per layer, checks nothing. Attention with other dimensions than these fields say (latent
// attention, wider global layers) is left alone.
//
// Differences are warnings: config.json does not decide what the quantized bytes mean, and new
// architectures use old field names in new ways. A bias of the wrong length is an error.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/check/check.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"

namespace prepack {

// Appends to `findings`.
void CheckConfigShapes(const Checkpoint& checkpoint, const QuantizedModel& model,
                       std::vector<Finding>& findings);

// The experts of each layer: are they all there, with the same modules each, and quantized alike?
// Two ways to store them:
//
//     model.layers.3.mlp.experts.7.up_proj.weight    one set of tensors per expert
//     model.layers.3.mlp.experts.gate_up_proj        one tensor, whose first dimension counts them

// Appends to `findings`.
void CheckExperts(const Checkpoint& checkpoint, const QuantizedModel& model,
                  std::vector<Finding>& findings);

// The parts of module names, and whether decoder layers 0 … num_hidden_layers − 1 all exist.

// Layers beyond num_hidden_layers are legal: they predict further tokens. Appends to `findings`.
void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings);

// Counts of config.json against the numbers in names.

// A field that is a count; nullopt when it is absent or something else.
std::optional<uint64_t> CountOf(const Json& config, std::string_view key);

inline constexpr size_t kShownNumbers = 5;

// Numbers below a count that are not there: how many, and the first of them.
struct MissingNumbers {
  uint64_t count = 0;
  std::vector<uint64_t> first;
};

// `count` comes from a file and may be anything: it is never counted up to.
MissingNumbers MissingBelow(uint64_t count, const std::set<uint64_t>& present);

// "3, 4, …"
std::string ShowMissing(const MissingNumbers& missing);

// Modules without any stored tensor. Neither index nor config names them; the only evidence is that
// other layers have them. From names alone.
//
// Layers of one model need not be alike: attention alternates with state spaces, the first layers
// of a mixture of experts are dense, cross-attention comes every fifth layer. But such layers have
// something *else*: another block, or a block with other modules. So a block is suspect when what
// it holds is a part of what the same block of other layers holds, and when fewer layers are like
// it than like those. A few such layers are an error ("module-missing"), many a warning
// ("module-irregular"); what all layers of one kind lack, by the `layer_types` of config.json, is
// neither. Keys and values that config.json says are shared, between layers or with each other, are
// no more than a note ("module-shared").
//
// Where no other layer is there to compare with, a block is suspect in itself when it has a
// projection without those that it works with: gate without up, q without k ("module-partner-
// missing").

// Appends to `findings`.
void CheckMissingModules(const Checkpoint& checkpoint, std::vector<Finding>& findings);

// The scales of the key and value caches: bad values, layers without them, and whether the config
// says that caches are quantized.

// In real models, scales of one role differ by a factor of some ten between layers. One that is
// wrong by a thousand is this far from the others, though it belongs to a layer with small values.
inline constexpr double kPeerCacheScale = 200;

// Appends to `findings`. `read_data`: looks at the values, too.
Status CheckCacheScales(const Checkpoint& checkpoint, bool read_data,
                        std::vector<Finding>& findings);

// The hidden channels of a model, by everything that a layer stores about them. Modules that read
// the hidden state (q, k, v, gate, up), the norms before and after them, and the embedding have
// strong and weak channels. Two of them may have little in common, so channel_orders.h, which
// compares pairs, can miss a module. But all others together predict which channels of a module are
// strong: a linear regression on their ranks predicts the ranks of the module with a multiple
// correlation of 0.2 to 0.93 in trained models. If it does so only after the channels of the module
// are put into another order, the module was packed in that order.
//
// Norms and embedding are not packed, so this works even if all modules are wrong in the same way.

// Multiple correlation with a wrong order: at most 0.29 in 240 modules of trained models, which are
// as stored told by 0.2 to 0.93. To be reported, an order has to reach this, after what as many
// unrelated columns would explain was taken off, and to gain so much on the stored one.
inline constexpr double kHiddenCorrelation = 0.36;
inline constexpr double kHiddenGain = 0.12;
// With few channels, unrelated columns may explain as much. So at most this many of the models
// whose weights were never trained have any module reported: a correlation must be so improbable
// that all modules, times all orders that were tried, would not reach it more often.
inline constexpr double kHiddenFalseAlarms = 1e-6;

// A bound of the probability that a regression on `columns` that have nothing to do with the ranks
// of `channels` explains at least `explained` of their variance.
double ChanceToExplain(double explained, size_t columns, size_t channels);

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
