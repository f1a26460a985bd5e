#ifndef PREPACK_FORMATS_FUSED_SIBLINGS_H_
#define PREPACK_FORMATS_FUSED_SIBLINGS_H_

// Runtimes fuse layers that read the same input into one: q, k and v; gate and up. They must then
// be quantized in one way (mirrors vLLM 0.32, layers/quantization/utils/quant_utils.py:
// is_layer_skipped, and its packed_modules_mapping).

#include <vector>

#include "formats/format.h"
#include "formats/module_tensors.h"

namespace prepack {

// Adds a finding ("module-siblings-differ") for every set of siblings of which some are quantized
// and some are not, or whose schemes differ; it lists them. `modules` are all of the checkpoint's.
// A module that is quantized but could not be read says nothing here: its error does.
void ReportFusedSiblings(const std::vector<ModuleTensors>& modules, QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FUSED_SIBLINGS_H_
