#ifndef PREPACK_FORMATS_CONV1D_H_
#define PREPACK_FORMATS_CONV1D_H_

// transformers' Conv1D, of GPT-2 and its relatives (mirrors transformers 5, pytorch_utils.py): a
// linear layer whose weight is stored [K, N]. Quantizers that know the class store it as any other
// linear layer; those that take matrices from the files alone (llm-compressor's model_free_ptq)
// quantize the rows of [K, N], so that the scales belong to input channels.

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "container/checkpoint.h"
#include "container/json.h"

namespace prepack {

// `config` is config.json of the model.
bool IsConv1d(const Json& config, std::string_view module);

// kUnsupported where the bias shows that `weight`, whose codes are [rows, columns], is that of a
// Conv1D and is still stored [K, N]. Of a square matrix, only its neighbours can tell.
Status RefuseInputsFirst(const Checkpoint& checkpoint, std::string_view module,
                         const StoredTensor& weight, uint64_t rows, uint64_t columns);

}  // namespace prepack

#endif  // PREPACK_FORMATS_CONV1D_H_
