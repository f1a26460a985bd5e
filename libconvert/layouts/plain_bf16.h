#ifndef PREPACK_LAYOUTS_PLAIN_BF16_H_
#define PREPACK_LAYOUTS_PLAIN_BF16_H_

// Weights as any runtime loads those of an unquantized layer. --fallback dequantize makes modules
// into these that no other layout takes. No scales: they are multiplied in. bias in the dtype of
// the activations.
//
//     plain/bf16          weight, BF16 [N, K], row-major
//     plain/bf16-conv1d   weight, BF16 [K, N], row-major: transformers' Conv1D multiplies x · W
//                         (GPT-2), so this is what a loader of such a model expects

#include "layouts/layout.h"

namespace prepack {

extern const Layout kPlainBf16;
extern const Layout kPlainBf16Conv1d;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_PLAIN_BF16_H_
