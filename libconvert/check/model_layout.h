#ifndef PREPACK_CHECK_MODEL_LAYOUT_H_
#define PREPACK_CHECK_MODEL_LAYOUT_H_

// Is the model whole? Decoder layers 0 … num_hidden_layers − 1, and experts 0 … E − 1 with the same
// tensors each. From names alone.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/checkpoint.h"
#include "formats/finding.h"

namespace prepack {

// The index of the decoder layer that a module or tensor belongs to, by its name; nullopt for what
// lies elsewhere (embeddings, vision towers).
std::optional<uint64_t> DecoderLayerOf(std::string_view name);

// The part after the last dot.
std::string_view LeafName(std::string_view name);

// The name with every number between dots replaced by #: "model.layers.#.mlp.up_proj". Modules of
// the same role in other layers (and experts) have the same.
std::string RoleOf(std::string_view module);

// Append to `findings`.
void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings);
void CheckExperts(const Checkpoint& checkpoint, std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_MODEL_LAYOUT_H_
