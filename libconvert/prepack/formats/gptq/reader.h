#ifndef PREPACK_FORMATS_GPTQ_READER_H_
#define PREPACK_FORMATS_GPTQ_READER_H_

// Describes one module that is stored in the tensors of GPTQ (drawn in formats/gptq/linear.h):
// checks that every tensor agrees with the others and with what the config says, from headers,
// g_idx and the first zero point alone. AutoRound stores the same tensors under a config of its
// own.

#include <memory>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"
#include "prepack/formats/gptq/config.h"
#include "prepack/formats/gptq/shape.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::gptq {

// A module, and what was read to describe it.
struct Module {
  std::unique_ptr<QuantizedLinear> linear;
  Shape shape;
  GroupOrder order;
};

// `module` has a tensor qweight. The result refers to the checkpoint. Sound but unsupported input
// is kUnsupported, contradictory or incomplete input is kMalformed. Whether asymmetric zero points
// follow the declared convention is asked of the whole checkpoint, see formats/gptq/zeros.h.
Result<Module> DescribeModule(const Checkpoint& checkpoint, const ModuleTensors& module,
                              const Settings& settings, FindingTally& findings);

}  // namespace prepack::gptq

#endif  // PREPACK_FORMATS_GPTQ_READER_H_
