#ifndef PREPACK_CHECK_MISSING_MODULES_H_
#define PREPACK_CHECK_MISSING_MODULES_H_

// The parts of module names, and whether decoder layers 0 … num_hidden_layers − 1 all exist.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/formats/finding.h"

namespace prepack {

// Layers beyond num_hidden_layers are legal: they predict further tokens. Appends to `findings`.
void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings);

// Counts of config.json against the numbers in names.

// A field that is a count; nullopt when it is absent or something else.
std::optional<uint64_t> CountOf(const Json& config, std::string_view key);

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

}  // namespace prepack

#endif  // PREPACK_CHECK_MISSING_MODULES_H_
