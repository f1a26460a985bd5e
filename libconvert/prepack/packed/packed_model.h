#pragma once

// A packed folder as the source of another output: unpacking is the exact inverse of packing, so
// its modules are in the canonical layout again, under the names that they had in the checkpoint
// that it was made from.
//
// What a folder does not keep: scales that were rounded when it was packed stay rounded, layers
// that were fused with one scale each have it per output channel, and static scales of activations
// are there only if the kernel uses them; without, activations are what the kernel makes of them.

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/accepted.h"
#include "prepack/formats/format.h"

namespace prepack {

// The format of packed folders, as their config.json declares it.
inline constexpr std::string_view kPackedFormat = "prepack";

// Does config.json say so?
bool IsPackedFolder(const Checkpoint& checkpoint);

// The modules of a packed folder. kUnsupported when some were kept as their quantizer stored them.
Result<QuantizedModel> ReadPackedModel(const Checkpoint& checkpoint);

// The modules of any source: a checkpoint of any format, or a packed folder.
Result<QuantizedModel> ReadSourceModel(const Checkpoint& checkpoint,
                                       const AcceptedFindings& accepted = {});

}  // namespace prepack
