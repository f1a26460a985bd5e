#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_COPIES_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_COPIES_H_

#include <vector>

#include "formats/compressed_tensors_config.h"

namespace prepack {

// Parses the first of `configs`, which is not empty, and compares the copies with it. Copies that
// differ in what the weights mean (config groups, storage formats, a version on the other side of a
// change of the packing) are kMalformed ("config-conflict"). Ignore lists may differ: the tensors
// win over them anyway. A version that only a copy has is taken from there.
Result<CtConfig> ParseCtConfigs(const std::vector<QuantizationConfig>& configs);

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_COPIES_H_
