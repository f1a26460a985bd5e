#pragma once

// What the dialects of FP4 share: weights of two codes per byte, and their scales. gpt-oss
// (fp4/reader.cpp), ModelOpt (modelopt/) and Quark (quark/) are read by way of this.

#include <cstdint>
#include <memory>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::fp4 {

inline constexpr uint64_t kMxGroup = 32;     // input channels per scale of MXFP4
inline constexpr uint64_t kNvfp4Group = 16;  // of NVFP4

// What a dialect says of a module.
struct Meaning {
  bool nvfp4 = false;  // scales in FP8 under a global one; else MXFP4, whose scales are exponents
  ActivationScheme activations;
  DType stored = DType::kU8;                // of the weight
  std::string_view scale = "weight_scale";  // the name of its scales

  uint64_t group_size() const { return nvfp4 ? kNvfp4Group : kMxGroup; }
  ScaleForm form() const { return nvfp4 ? ScaleForm::kFloat8 : ScaleForm::kExponent; }

  friend bool operator==(const Meaning&, const Meaning&) = default;
};
// Activations of 4 bits in groups of that size, quantized at run time.
ActivationScheme FourBitActivations(uint64_t group_size);

// The scheme of a module.
Scheme SchemeOf(const Meaning& meaning);

// A module of one matrix, as ModelOpt and Quark name its tensors; DeepSeek V4 stores I8 with
// `scale`:
//
//     MODULE.weight          U8 [N, K/2]
//     MODULE.weight_scale    U8 [N, K/32] of MXFP4; F8_E4M3 [N, K/16] of NVFP4
//     MODULE.weight_scale_2  F32, one number, of NVFP4; multiplies
//     MODULE.input_scale     belongs to it, and is not used: activations are quantized at run time
Result<std::unique_ptr<QuantizedLinear>> DescribeModule(const Checkpoint& checkpoint,
                                                        const ModuleTensors& module,
                                                        const Meaning& meaning);

// Experts in NVFP4 that are stacked, as ModelOpt leaves those of Llama 4 and gpt-oss; it splits all
// others. Matrices are stored [K, N], as these models multiply with them:
//
//     EXPERTS.X                 U8 [E, K/2, N]
//     EXPERTS.X_weight_scale    F8_E4M3 [E, K/16, N]
//     EXPERTS.X_weight_scale_2  F32, one number for all experts; multiplies
//     EXPERTS.X_input_scale     belongs to them, and is not used
//
// Expert e is the module EXPERTS.X.e. In gpt-oss, rows of gate_up_proj are gate and up by turns.

// Is the tensor of this suffix such a stack?
bool IsNvfp4Stack(const ModuleTensors& module, std::string_view suffix, const StoredTensor& tensor);

// Adds the modules of such a tensor, one for each expert; or the error that all of them have.
Status DescribeNvfp4Stack(const Checkpoint& checkpoint, const ModuleTensors& experts,
                          std::string_view suffix, const Meaning& meaning, QuantizedModel& model);

}  // namespace prepack::fp4
