#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_PACK_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_PACK_H_

// Describes one pack-quantized module: checks that its config group can be read and that every
// tensor agrees with it, from headers and the few bytes of weight_shape (and weight_g_idx) alone.

#include <memory>

#include "canonical/quantized_linear.h"
#include "formats/compressed_tensors_config.h"
#include "formats/compressed_tensors_module.h"
#include "formats/finding_tally.h"

namespace prepack {

// `module` has been classified as kPackQuantized; `group` is the one that describes it. The result
// refers to the checkpoint.
Result<std::unique_ptr<QuantizedLinear>> DescribePackQuantized(const Checkpoint& checkpoint,
                                                               const CtModule& module,
                                                               const CtGroup& group,
                                                               const CtConfig& config,
                                                               FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_PACK_H_
