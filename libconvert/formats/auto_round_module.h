#ifndef PREPACK_FORMATS_AUTO_ROUND_MODULE_H_
#define PREPACK_FORMATS_AUTO_ROUND_MODULE_H_

// Describes one module of an AutoRound checkpoint: chooses between the tensors of GPTQ and of AWQ,
// and hands over to what reads those.

#include <memory>

#include "base/result.h"
#include "canonical/quantized_linear.h"
#include "formats/auto_round_config.h"
#include "formats/finding_tally.h"
#include "formats/gptq_evidence.h"
#include "formats/gptq_module.h"
#include "formats/module_tensors.h"

namespace prepack {

// Samples of asymmetric zero points, pooled over the modules of a checkpoint. `zeros` is the
// convention that they were read with.
// How a user declares the other convention of zero points.
inline constexpr std::string_view kAutoRoundZerosHint =
    "If the weights are right, set packing_format to the other of \"auto_round\" (z) and "
    "\"auto_round:auto_gptq\" (z - 1) in every copy of the quantization config; for model_free "
    "exports, which store z - 1 under \"auto_round\", too, to \"auto_round:gptqmodel\" (z)";

struct AutoRoundEvidence {
  GptqZeroSample sample;
  GptqZeros zeros = GptqZeros::kMinusOne;
};

// `module` has a qweight, `scheme` is what the config says of it. The result refers to the
// checkpoint.
Result<std::unique_ptr<QuantizedLinear>> DescribeAutoRoundModule(
    const Checkpoint& checkpoint, const ModuleTensors& module, const AutoRoundConfig& config,
    const AutoRoundScheme& scheme, AutoRoundEvidence& evidence, FindingTally& findings);

// OK for a module without qweight that is not quantized; else why it cannot be left as it is.
Status CheckAutoRoundPlain(const Checkpoint& checkpoint, const ModuleTensors& module);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AUTO_ROUND_MODULE_H_
