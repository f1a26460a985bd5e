#ifndef PREPACK_FORMATS_TGI_CONFIG_H_
#define PREPACK_FORMATS_TGI_CONFIG_H_

// Early quantizers of text-generation-inference declared nothing in config.json: they stored the
// settings as tensors of one number beside the weights (mirrors TGI 2, utils/weights.py).
//
//     gptq_bits       I64, I32   4
//     gptq_groupsize  I64, I32   128
//     gptq_sym        BOOL       absent before it was introduced: asymmetric

#include "base/result.h"
#include "container/checkpoint.h"

namespace prepack {

// OK without such tensors; else kUnsupported, with the config that says the same: it is the user
// who knows that nothing else was meant.
Status RefuseTgiConfig(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_TGI_CONFIG_H_
