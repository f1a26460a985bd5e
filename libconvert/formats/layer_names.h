#ifndef PREPACK_FORMATS_LAYER_NAMES_H_
#define PREPACK_FORMATS_LAYER_NAMES_H_

// Layers by the names of their tensors:
//
//     model.layers.12.mlp.experts.3.up_proj.weight
//     ~~~~~~~~~~~~ ~~ ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
//     list      index            below

#include <cstdint>
#include <optional>
#include <string_view>

#include "container/checkpoint.h"

namespace prepack {

// Views into the name that was parsed.
struct LayerName {
  std::string_view list;
  uint64_t index = 0;
  std::string_view below;
};

// nullopt for what lies in no list of layers, like the embedding. Of lists within lists the
// innermost counts: the stages of a vision tower are not layers of one kind.
std::optional<LayerName> ParseLayerName(std::string_view name);

// Whether a module lies in a list of layers that has the name which decoders have.
bool IsDecoderModule(std::string_view module);

// The number that `text` is; nullopt when it is none.
std::optional<uint64_t> WholeNumber(std::string_view text);

// The list that `num_hidden_layers` counts: the one with the name that decoders have, or the only
// one that there is; empty when neither tells. A view into the checkpoint.
std::string_view FindDecoderList(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_LAYER_NAMES_H_
