#ifndef PREPACK_VERIFY_FUSED_MODEL_H_
#define PREPACK_VERIFY_FUSED_MODEL_H_

// A packed folder may hold several modules of its source as one (`convert --fuse`). To be compared
// with it, the source is fused as runtimes expect it under the name of the whole, whatever the
// folder says of it.

#include "base/result.h"
#include "convert/manifest.h"
#include "formats/format.h"

namespace prepack {

// For each module of the manifest that the source has not, puts one in the place of those that its
// name stands for. Where the source lacks one of them, or they do not go together, it is left as it
// is: it then lacks the module. An error is one of reading the source.
Status FuseAsPacked(const Manifest& manifest, QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_VERIFY_FUSED_MODEL_H_
