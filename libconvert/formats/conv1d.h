#ifndef PREPACK_FORMATS_CONV1D_H_
#define PREPACK_FORMATS_CONV1D_H_

// transformers' Conv1D, of GPT-2 and its relatives (mirrors transformers 5, pytorch_utils.py): a
// linear layer whose weight is stored [K, N]. Quantizers store it as any other linear layer.

#include <string_view>

#include "container/json.h"

namespace prepack {

// `config` is config.json of the model.
bool IsConv1d(const Json& config, std::string_view module);

}  // namespace prepack

#endif  // PREPACK_FORMATS_CONV1D_H_
