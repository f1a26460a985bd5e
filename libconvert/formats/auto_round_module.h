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

// How a user declares the other convention of zero points.
inline constexpr std::string_view kAutoRoundZerosHint =
    "If the weights are right, set packing_format to the other of \"auto_round\" (z) and "
    "\"auto_round:auto_gptq\" (z - 1) in every copy of the quantization config; for model_free "
    "exports, which up to 0.15 stored z - 1 under \"auto_round\", too, to "
    "\"auto_round:gptqmodel\" (z)";

// How a module in the tensors of GPTQ is to be read; `scheme` is what the config says of it. An
// export of the time when readers took different defaults of `sym` is looked into.
Result<GptqSettings> AutoRoundGptqSettings(const Checkpoint& checkpoint,
                                           const ModuleTensors& module,
                                           const AutoRoundConfig& config,
                                           const AutoRoundScheme& scheme, GptqZeros zeros);

// `module` has a qweight. What its zero points say of their convention is added to `sample`. The
// result refers to the checkpoint.
Result<std::unique_ptr<QuantizedLinear>> DescribeAutoRoundModule(
    const Checkpoint& checkpoint, const ModuleTensors& module, const AutoRoundConfig& config,
    const AutoRoundScheme& scheme, GptqZeros zeros, GptqZeroSample& sample, FindingTally& findings);

// OK for a module without qweight that is not quantized; else why it cannot be left as it is.
Status CheckAutoRoundPlain(const Checkpoint& checkpoint, const ModuleTensors& module);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AUTO_ROUND_MODULE_H_
