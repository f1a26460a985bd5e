#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_DESCRIBE_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_DESCRIBE_H_

// Describes one quantized module of a compressed-tensors checkpoint: checks that its config group
// can be read and that every tensor agrees with it, from headers and a few small tensors alone.

#include <memory>
#include <vector>

#include "base/result.h"
#include "canonical/quantized_linear.h"
#include "formats/compressed_tensors_config.h"
#include "formats/compressed_tensors_module.h"
#include "formats/finding_tally.h"

namespace prepack {

// `module` has been classified as `storage`, which is not kPlain; `group` is the one that describes
// it. The result has one linear layer, or one for each expert of stacked tensors, named MODULE.0,
// MODULE.1, …; it refers to the checkpoint.
Result<std::vector<std::unique_ptr<QuantizedLinear>>> DescribeCtModule(
    const Checkpoint& checkpoint, const CtModule& module, const CtGroup& group, CtStorage storage,
    const CtConfig& config, FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_DESCRIBE_H_
