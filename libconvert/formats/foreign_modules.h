#ifndef PREPACK_FORMATS_FOREIGN_MODULES_H_
#define PREPACK_FORMATS_FOREIGN_MODULES_H_

#include <vector>

#include "formats/format.h"
#include "formats/module_tensors.h"

namespace prepack {

// Adds an error for every module that holds quantized weights, or scales without weights, and that
// the reader of the declared format neither described nor complained about. Such a module would
// pass through as if it were not quantized, in bytes that nobody can read. It is "module-foreign"
// where the tensors are those of another format, also in a module that was described; and
// "storage-unsupported" where codes and scales lie under names that writers use and that are not
// read, such as experts stacked in one tensor.
//
// Other matrices of FP8, of 4-bit floats or of bytes, which have no scale beside them, are a
// finding ("tensor-stays-quantized"): they pass through. `modules` are all of the checkpoint's.
void ReportForeignModules(const Checkpoint& checkpoint, const std::vector<ModuleTensors>& modules,
                          QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FOREIGN_MODULES_H_
