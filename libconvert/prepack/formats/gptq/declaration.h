#ifndef PREPACK_FORMATS_GPTQ_DECLARATION_H_
#define PREPACK_FORMATS_GPTQ_DECLARATION_H_

#include <optional>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/quantization_config.h"

namespace prepack::gptq {

// One copy of a GPTQ config, normalised; nullopt and nullptr where it says nothing.
struct Declaration {
  std::string where;
  std::optional<int64_t> bits;
  std::optional<int64_t> group_size;
  std::optional<bool> act_order;
  std::optional<bool> symmetric;
  std::optional<std::string> format;  // lower case
  std::optional<bool> lm_head;
  std::string activation;         // how activations are quantized at run time; empty: not at all
  const Json* dynamic = nullptr;  // points into the checkpoint, like the next
  const Json* block_modules = nullptr;  // modules_in_block_to_quantize
  std::vector<std::string> producers;   // "gptqmodel:7.3.4", lower case
};

// A wrong type, or two spellings of one key that disagree, is kMalformed; tensors or features that
// are not read (Marlin, pack_dtype, rotation, adapter) are kUnsupported.
Result<Declaration> ParseDeclaration(const QuantizationConfig& config);

// The producer is known to borrow across fields where it stores z - 1; or to wrap each field.
bool SubtractsWholeWords(const std::vector<std::string>& producers);
bool WrapsFields(const std::vector<std::string>& producers);
// AutoRound wrote it. Of several patterns that match a module it applies the last, and of several
// rules of `dynamic` the first counts: the width of a module may be another than its rule says.
bool IsOfAutoRound(const std::vector<std::string>& producers);

// Early quantizers of text-generation-inference declared nothing in config.json: they stored the
// settings as tensors of one number beside the weights (mirrors TGI 2, utils/weights.py).
//
//     gptq_bits       I64, I32   4
//     gptq_groupsize  I64, I32   128
//     gptq_sym        BOOL       absent before it was introduced: asymmetric

// OK without such tensors; else kUnsupported, with the config that says the same: it is the user
// who knows that nothing else was meant.
Status RefuseTgiConfig(const Checkpoint& checkpoint);

}  // namespace prepack::gptq

#endif  // PREPACK_FORMATS_GPTQ_DECLARATION_H_
