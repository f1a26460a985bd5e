#ifndef PREPACK_LAYOUTS_PLAIN_BF16_H_
#define PREPACK_LAYOUTS_PLAIN_BF16_H_

// plain/bf16: weights as any runtime loads an unquantized layer: what modules become that no other
// layout takes (--fallback dequantize).
//
// weight, BF16 [N, K], row-major. No scales: they are multiplied in. bias in the dtype of the
// activations.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kPlainBf16;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_PLAIN_BF16_H_
