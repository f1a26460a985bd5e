#ifndef PREPACK_FORMATS_FOREIGN_MODULES_H_
#define PREPACK_FORMATS_FOREIGN_MODULES_H_

#include "formats/format.h"

namespace prepack {

// Adds an error ("module-foreign") for every module that holds quantized weights, or scales without
// weights, and that the reader of the declared format neither described nor complained about. Such
// a module would pass through as if it were not quantized, in bytes that nobody can read.
void ReportForeignModules(const Checkpoint& checkpoint, QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FOREIGN_MODULES_H_
