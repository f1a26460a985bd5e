#ifndef PREPACK_VERIFY_EXACTNESS_H_
#define PREPACK_VERIFY_EXACTNESS_H_

#include "base/isa.h"
#include "base/progress.h"
#include "base/result.h"
#include "formats/format.h"
#include "verify/module_states.h"
#include "verify/packed_folder.h"
#include "verify/report.h"

namespace prepack {

// Level 2: is the folder still the model? Every part of every packed module is unpacked and
// compared with the source as the readers deliver it: codes and zero points must be equal, scales
// may differ only by the rounding that the manifest names. Tensors that pass through are compared
// byte for byte, and nothing of the source may be missing. With a sample, only its modules are
// unpacked, and only their source tensors are read; notes say what was not looked at. Sets `exact`,
// `max_scale_difference` and the states of the modules in `figures`.
Result<LevelResult> CheckExactness(const PackedFolder& folder, const Checkpoint& source,
                                   const QuantizedModel& model, const ModuleSample* sample, Isa isa,
                                   unsigned threads, Progress& progress, ModuleFigures& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_EXACTNESS_H_
