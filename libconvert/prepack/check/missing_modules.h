#ifndef PREPACK_CHECK_MISSING_MODULES_H_
#define PREPACK_CHECK_MISSING_MODULES_H_

// Modules of which no tensor is stored. No index and no config names them; what tells is that other
// layers have them. From names alone.
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

#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"

namespace prepack {

// Appends to `findings`.
void CheckMissingModules(const Checkpoint& checkpoint, std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_MISSING_MODULES_H_
