#ifndef PREPACK_FORMATS_FUSED_SIBLINGS_H_
#define PREPACK_FORMATS_FUSED_SIBLINGS_H_

// Runtimes fuse layers that read the same input into one: q, k and v; gate and up. They must then
// be quantized in one way (mirrors vLLM 0.32, layers/quantization/utils/quant_utils.py:
// is_layer_skipped, and its packed_modules_mapping).

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "formats/format.h"
#include "formats/module_tensors.h"

namespace prepack {

// Layers of one parent that runtimes run as one.
struct SiblingSet {
  std::string_view fused;                 // what runtimes call the whole; empty: no layer of theirs
  std::array<std::string_view, 3> names;  // in the order of their output channels; "" is none

  std::span<const std::string_view> Names() const {
    return std::span(names).first(names.back().empty() ? 2 : 3);
  }
};

std::span<const SiblingSet> SiblingSets();

// Adds a finding ("module-siblings-differ") for every set of siblings of which some are quantized
// and some are not, or whose schemes differ; it lists them. `modules` are all of the checkpoint's.
// A module that is quantized but could not be read says nothing here: its error does.
void ReportFusedSiblings(const std::vector<ModuleTensors>& modules, QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FUSED_SIBLINGS_H_
