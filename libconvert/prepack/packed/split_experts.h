#ifndef PREPACK_PACKED_SPLIT_EXPERTS_H_
#define PREPACK_PACKED_SPLIT_EXPERTS_H_

// A checkpoint that is made of one with stacked experts has them one by one
// (model/split_linear.h), as the readers of its format expect. To be compared with its source, that
// is split in the same way.

#include <memory>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/formats/format.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/manifest.h"

namespace prepack {

// The modules of a model, some in pieces.
struct SplitModules {
  std::vector<std::unique_ptr<QuantizedLinear>> pieces;
  std::vector<const QuantizedLinear*> all;  // pieces, and the modules that stay whole
};

// `config` is that of the source. The model must outlive the result. kUnsupported when pieces would
// cut blocks of channels that share a scale.
Result<SplitModules> SplitExperts(const Json& config, const QuantizedModel& model);

// Puts the pieces into the model, in the place of what they are pieces of, if the manifest is that
// of a checkpoint.
Status SplitAsPacked(const Manifest& manifest, const Json& config, QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_PACKED_SPLIT_EXPERTS_H_
