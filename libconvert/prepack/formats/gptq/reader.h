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

namespace prepack {

// A module, and what was read to describe it.
struct GptqModule {
  std::unique_ptr<QuantizedLinear> linear;
  GptqShape shape;
  GptqOrder order;
};

// `module` has a tensor qweight. The result refers to the checkpoint. Sound but unsupported input
// is kUnsupported, contradictory or incomplete input is kMalformed. Whether asymmetric zero points
// follow the declared convention is asked of the whole checkpoint, see formats/gptq/zeros.h.
Result<GptqModule> DescribeGptqModule(const Checkpoint& checkpoint, const ModuleTensors& module,
                                      const GptqSettings& settings, FindingTally& findings);

// The format of GPTQModel, AutoGPTQ, optimum, and of AutoRound's export to auto_gptq. The tensors
// of a module are drawn in formats/gptq/linear.h, its zero points in formats/gptq/zeros.h, the
// config is described in formats/gptq/config.h. Which modules are quantized is told by the tensors;
// where the config says otherwise, that is a finding.
//
// Not read: Marlin, BitBLAS, QQQ and EXL3 weights (tiled for GPUs), words of other than 32 bits,
// rotated weights, adapters, embeddings.

Status ReadGptq(const ReadContext& context, QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_READER_H_
