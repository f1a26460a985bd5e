#pragma once

// Layers that are not quantized and that a runtime would pack at every start: its head, and its
// attention where only experts are quantized. Packed ahead they are modules like those that were
// dequantized, and the runtime uses the mapped file.

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/packed/manifest.h"

namespace prepack {

// Adds to `model`, which was read from the checkpoint, every such layer that a packed form holds
// and that is large enough to matter:
//
//   lm_head                      unless config.json ties it to the embedding
//   ….self_attn.q_proj, k_proj, v_proj    of a decoder, all three or none
//   ….self_attn.o_proj                    of a decoder
//
// GGUF files and packed folders have none.
void AddPlainModules(const Checkpoint& checkpoint, QuantizedModel& model);

// The same, but those that the manifest says are packed.
void AddPlainAsPacked(const Manifest& manifest, const Checkpoint& checkpoint,
                      QuantizedModel& model);

}  // namespace prepack
