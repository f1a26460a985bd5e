#pragma once

// Names of modules and tensors, and the layers that they name:
//
//     model.layers.12.mlp.experts.3.up_proj.weight
//     ~~~~~~~~~~~~ ~~ ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
//     list      index            below

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace prepack {

// The part after the last dot: "up_proj". Views that these functions return are of `name`.
std::string_view LastPart(std::string_view name);
// The part before the last dot, which is the module of a tensor; all of a name without dots.
std::string_view ModuleOf(std::string_view name);

// The name with every number between dots replaced by #: "model.layers.#.mlp.up_proj". Modules of
// the same role in other layers (and experts) have the same.
std::string RoleOf(std::string_view module);

// Views into the name that was parsed.
struct LayerName {
  std::string_view list;
  uint64_t index = 0;
  std::string_view below;
};

// nullopt for what lies in no list of layers, like the embedding. Of lists within lists the
// innermost counts: the stages of a vision tower are not layers of one kind.
std::optional<LayerName> ParseLayerName(std::string_view name);

// The names that the list of a decoder's layers may have, the most usual first.
std::span<const std::string_view> DecoderListNames();

// Whether a module belongs to one expert of a mixture ("….experts.3.up_proj"); the experts that all
// tokens share are named otherwise, and run like any linear layer.
bool IsExpert(std::string_view module);

// An expert's module: one of a mixture, or its piece of weights that are stored stacked.
//
//     model.layers.12.mlp.experts.3.up_proj        model.layers.12.mlp.experts.gate_up_proj.3
//     ~~~~~~~~~~~~~~~~~~~~~~~~~~~ ~ ~~~~~~~        ~~~~~~~~~~~~~~~~~~~~~~~~~~~ ~~~~~~~~~~~~ ~
//     mixture                index projection      mixture                     projection  index
struct ExpertName {
  std::string_view mixture;
  std::string_view projection;
  uint64_t index = 0;
  bool stored_stacked = false;  // the second form
};

// nullopt for any other module.
std::optional<ExpertName> ParseExpertName(std::string_view module);

// The share of a module that one NUMA node of a machine computes, where a runtime holds those
// apart: "….down_proj.numa.1" is that of node 1. Any other module is the only share of itself.
struct NodeShare {
  std::string_view module;
  uint64_t node = 0;
  bool is_share = false;
};

NodeShare ParseNodeShare(std::string_view module);

// Whether a module lies in a list of layers that has the name which decoders have.
bool IsDecoderModule(std::string_view module);

}  // namespace prepack
