#ifndef PREPACK_LAYOUTS_ZENTORCH_INT8_DLP_H_
#define PREPACK_LAYOUTS_ZENTORCH_INT8_DLP_H_

// zentorch/int8-dlp: what AOCL-DLP's int8 kernel reads inside zentorch_dynamic_qlinear with
// is_weight_prepacked=True. Known and tested, but never chosen: vLLM does not use it, and it is
// private to AOCL-DLP. zentorch's own packer writes it only where N ≤ 1024 or K ≤ 2048; beyond, it
// writes something else that the kernel does not expect (−14 dB).
// Mirrors zentorch 2.13.0.1, src/cpu/cpp/WeightReorder.cpp, with ZenDNN 6.0.1.
//
// weight, U8 [bytes]: N in panels of 64 output channels while so many are left, then one of the
// remaining whole sixteens, then one of 16 for the rest; K padded to a multiple of four. In a panel
// of width w that begins at channel c:
//
//     byte c · K4 + (k / 4) · 4w + (n − c) · 4 + k % 4
//
// then an i32 for each channel, padded to 16: 128 · Σ_k w(n, k). weight_scale, bf16 [N].

#include "layouts/layout.h"

namespace prepack {

extern const Layout kZentorchInt8Dlp;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_ZENTORCH_INT8_DLP_H_
