#ifndef PREPACK_CHECK_CONFIG_SHAPES_H_
#define PREPACK_CHECK_CONFIG_SHAPES_H_

// The shapes of modules against config.json: hidden_size, the *intermediate_size fields,
// num_attention_heads, num_key_value_heads, head_dim and vocab_size, there or in text_config or
// llm_config. It checks only modules with the usual names (q_proj … down_proj, embed_tokens,
// lm_head) below the usual decoder prefixes. A field that is absent, or is a list with one value
// per layer, checks nothing. Attention with other dimensions than these fields say (latent
// attention, wider global layers) is left alone.
//
// Differences are warnings: config.json does not decide what the quantized bytes mean, and new
// architectures use old field names in new ways. A bias of the wrong length is an error.

#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"

namespace prepack {

// What a dimension may exceed the config by and still be called padding.
inline constexpr uint64_t kMaxPadding = 255;

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

}  // namespace prepack

#endif  // PREPACK_CHECK_CONFIG_SHAPES_H_
