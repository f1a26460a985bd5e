#pragma once

// What the dialects of FP8 share: a weight of F8_E4M3 [N, K] and its scale, which say the same
// thing under whichever names. `quant_method: fp8` and `fbgemm_fp8` (fp8/), ModelOpt (modelopt/)
// and Quark (quark/) are read by way of this.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/rows/row_linear.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::fp8 {

using Block = std::optional<std::array<uint64_t, 2>>;  // rows, columns

// Is it any of the FP8 types?
bool IsFloat8(DType dtype);

// What a dialect says of a module.
struct Meaning {
  Block block;
  // Where there is no block: kTensor, kChannel or kGroup. nullopt: the number of scales tells.
  std::optional<Granularity> granularity;
  uint64_t group_size = 0;  // of kGroup
  ScaleForm form = ScaleForm::kFactor;
  ActivationScheme activations;

  friend bool operator==(const Meaning&, const Meaning&) = default;
};

// kUnsupported or kMalformed unless the weight is a matrix of F8_E4M3, and not that of an
// embedding.
Status CheckWeight(const Checkpoint& checkpoint, std::string_view module,
                   const StoredTensor& weight);

// kMalformed: the weight has no scale. `expected` says where one could be.
Status MissingScale(const Checkpoint& checkpoint, const StoredTensor& weight,
                    std::string_view expected);

// The scheme of a module [n, k] with so many scales.
Scheme SchemeOf(const Meaning& meaning, uint64_t scales, const MatrixShape& shape);

// A module of one matrix, whose weight has been checked. `input` is the scale of its activations,
// or nullptr; static activations need one, and those that are dynamic have no use for it.
Result<std::unique_ptr<QuantizedLinear>> DescribeModule(
    const Checkpoint& checkpoint, std::string_view module, const StoredTensor& weight,
    const StoredTensor& scale, const StoredTensor* input, const Meaning& meaning);

// FP8 experts that are not all one by one (mirrors transformers 5.23,
// integrations/finegrained_fp8.py and core_model_loading.py). Two forms:
//
// Stacked, as the model computes with them; B × C are the blocks of the config:
//
//     EXPERTS.gate_up_proj            F8_E4M3 [E, 2I, H]         or transposed [E, H, 2I]
//     EXPERTS.gate_up_proj_scale_inv  [E, ⌈2I/B⌉, ⌈H/C⌉]         [E, ⌈H/B⌉, ⌈2I/C⌉]
//     EXPERTS.down_proj               F8_E4M3 [E, H, I]          [E, I, H]
//     EXPERTS.down_proj_scale_inv     [E, ⌈H/B⌉, ⌈I/C⌉]          [E, ⌈I/B⌉, ⌈H/C⌉]
//
// Expert e is the module EXPERTS.gate_up_proj.e. A Qwen3 stores the first way and a Qwen3-VL the
// second, and nothing in the files says so. But whatever the sizes are, the shapes of gate_up_proj
// and down_proj fit each other in one of the two ways only: the first has 2I = 2 · I and H = H
// across, the second the other way round, and both would need 2I = I. Where down_proj is missing,
// hidden_size of config.json decides.
//
// Split, as transformers saves them: one weight for each expert, and the scales still stacked.
//
//     EXPERTS.e.gate_proj.weight      F8_E4M3 [I, H]   scale: the first half of the rows of
//     EXPERTS.e.up_proj.weight        F8_E4M3 [I, H]   the second half of
//     EXPERTS.gate_up_proj_scale_inv  [E, 2I/B, ⌈H/C⌉]

// The scale of the tensor of this suffix, if that is FP8 weights of stacked experts; else nullptr.
const StoredTensor* FindStackScale(const ModuleTensors& module, std::string_view suffix,
                                   const StoredTensor& tensor);

// Adds the modules of such a tensor, one for each expert; or the error that all of them have.
Status DescribeStack(const Checkpoint& checkpoint, const ModuleTensors& experts,
                     std::string_view suffix, const Meaning& meaning, QuantizedModel& model);

// The scale of a module that is an expert with a weight of its own, where it lies in a stack;
// nullptr when there is none. `modules` are all of the checkpoint's, ascending by name.
struct StackedScale {
  const StoredTensor* tensor = nullptr;
  uint64_t expert = 0;
  uint64_t part = 0;   // of `parts`, into which the rows of the stacked matrix are cut
  uint64_t parts = 1;  // 2 of gate_up_proj
};
StackedScale FindStackedScale(std::span<const ModuleTensors> modules, std::string_view module);

// A module with a weight of its own, and its scale in such a stack.
Result<std::unique_ptr<QuantizedLinear>> DescribeSplitExpert(const Checkpoint& checkpoint,
                                                             std::string_view module,
                                                             const StoredTensor& weight,
                                                             const StackedScale& scale,
                                                             const Meaning& meaning);

}  // namespace prepack::fp8
