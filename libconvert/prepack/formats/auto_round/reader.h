#pragma once

// How AutoRound's asymmetric modules in the tensors of GPTQ store their zero points: as
// packing_format says, but for one kind of export that lies (mirrors auto-round 0.15 and 0.16,
// auto_round/utils/model_free_utils.py):
//
//     calibration-free (model_free), labelled "auto_round"     stored
//     before 0.16.0                                            z − 1
//     from 0.16.0 on                                           z, as the label says
//
// The weights of the whole model tell which of them it is (formats/gptq/zeros.h): single modules
// may be too small, or have weights that do not lie around zero. Where all of them together do not
// tell (8 bits, tiny models), the version of the writer does; without one, the label counts.

#include <memory>
#include <span>
#include <string>

#include "prepack/base/status.h"
#include "prepack/formats/auto_round/config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"
#include "prepack/formats/gptq/module.h"
#include "prepack/formats/gptq/zeros.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::auto_round {

struct ZeroChoice {
  gptq::Zeros zeros = gptq::Zeros::kMinusOne;
  std::string contradicts;  // why the label is not followed; empty where it is
};

ZeroChoice ChooseZeros(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules,
                       const Config& config, const Matcher& matcher);

// How a user declares the other convention of zero points.
inline constexpr std::string_view kZerosHint =
    "If the weights are right, change packing_format from \"auto_round\" (z) to "
    "\"auto_round:auto_gptq\" (z - 1), or the other way round, in every copy of the quantization "
    "config. For model_free exports, which up to 0.15 stored z - 1 under \"auto_round\" as well, "
    "set it to "
    "\"auto_round:gptqmodel\" (z)";

// How a module in the tensors of GPTQ is to be read; `scheme` is what the config says of it. An
// export of the time when readers took different defaults of `sym` is looked into.
Result<gptq::Settings> GptqSettings(const Checkpoint& checkpoint, const ModuleTensors& module,
                                    const Config& config, const LayerScheme& scheme,
                                    gptq::Zeros zeros);

// `module` has a qweight. What its zero points say of their convention is added to `sample`. The
// result refers to the checkpoint.
Result<std::unique_ptr<QuantizedLinear>> DescribeModule(
    const Checkpoint& checkpoint, const ModuleTensors& module, const Config& config,
    const LayerScheme& scheme, gptq::Zeros zeros, gptq::ZeroSample& sample, FindingTally& findings);

// OK for a module without qweight that is not quantized; else why it cannot be left as it is.
Status CheckPlain(const Checkpoint& checkpoint, const ModuleTensors& module);

}  // namespace prepack::auto_round
