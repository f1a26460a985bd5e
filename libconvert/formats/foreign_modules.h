#ifndef PREPACK_FORMATS_FOREIGN_MODULES_H_
#define PREPACK_FORMATS_FOREIGN_MODULES_H_

#include <vector>

#include "formats/format.h"
#include "formats/module_tensors.h"

namespace prepack {

// Adds an error ("module-foreign") for every module that holds quantized weights, or scales without
// weights, and that the reader of the declared format neither described nor complained about. Such
// a module would pass through as if it were not quantized, in bytes that nobody can read. So is a
// module that was described, but holds codes of another format, too. `modules` are all of the
// checkpoint's.
void ReportForeignModules(const Checkpoint& checkpoint, const std::vector<ModuleTensors>& modules,
                          QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FOREIGN_MODULES_H_
