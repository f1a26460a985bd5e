#ifndef PREPACK_FORMATS_FP8_MODULE_H_
#define PREPACK_FORMATS_FP8_MODULE_H_

// What the dialects of FP8 share: a weight of F8_E4M3 [N, K] and its scale, which say the same
// thing under whichever names. `quant_method: fp8` and `fbgemm_fp8` (fp8/), ModelOpt (modelopt/)
// and Quark (quark/) are read by way of this.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
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
  // Where there is no block: kTensor or kChannel. nullopt: the number of scales tells.
  std::optional<Granularity> granularity;
  ScaleForm form = ScaleForm::kFactor;
  ActivationScheme activations;
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

}  // namespace prepack::fp8

#endif  // PREPACK_FORMATS_FP8_MODULE_H_
