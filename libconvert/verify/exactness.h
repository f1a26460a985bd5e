#ifndef PREPACK_VERIFY_EXACTNESS_H_
#define PREPACK_VERIFY_EXACTNESS_H_

#include <map>
#include <string>

#include "base/isa.h"
#include "base/progress.h"
#include "base/result.h"
#include "formats/format.h"
#include "verify/packed_folder.h"
#include "verify/report.h"

namespace prepack {

// Level 2: is the folder still the model? Every part of every packed module is unpacked and
// compared with the source as the readers deliver it: codes and zero points must be equal, scales
// may differ only by the rounding that the manifest names. Tensors that pass through are compared
// byte for byte, and nothing of the source may be missing. Sets `exact` and `max_scale_difference`
// of the modules in `figures` (by name).
Result<LevelResult> CheckExactness(const PackedFolder& folder, const Checkpoint& source,
                                   const QuantizedModel& model, Isa isa, unsigned threads,
                                   Progress& progress,
                                   std::map<std::string, ModuleVerification>& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_EXACTNESS_H_
