#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_DESCRIBE_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_DESCRIBE_H_

// What a config group says of a module, in the terms of the canonical layout.

#include <memory>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/compressed_tensors/config.h"
#include "prepack/formats/compressed_tensors/module.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/model/scheme.h"

namespace prepack::ct {

// The scheme of a module that is stored as `storage`. A group that cannot mean such tensors is
// kMalformed, one that asks for what is not read kUnsupported.
Result<Scheme> MakeScheme(const Module& module, const Group& group, Storage storage,
                          const MatrixShape& shape);

// kMalformed unless the group quantizes weights of the type that the storage holds.
Status CheckGroup(const Module& module, const Group& group, Storage storage);

// Describes one quantized module of a compressed-tensors checkpoint: checks that its config group
// can be read and that every tensor agrees with it, from headers and a few small tensors alone.

// `module` has been classified as `storage`, which is not kPlain; `group` is the one that describes
// it. The result has one linear layer, or one for each expert of stacked tensors, named MODULE.0,
// MODULE.1, …; it refers to the checkpoint.
Result<std::vector<std::unique_ptr<QuantizedLinear>>> DescribeModule(
    const Checkpoint& checkpoint, const Module& module, const Group& group, Storage storage,
    const Config& config, FindingTally& findings);

}  // namespace prepack::ct

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_DESCRIBE_H_
