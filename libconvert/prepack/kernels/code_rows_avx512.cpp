#include "prepack/kernels/code_rows.h"
#include "prepack/kernels/code_rows_loops.h"

namespace prepack {

void WidenCodesAvx512(const CodePacking& packing, const uint32_t* stored, size_t units,
                      size_t channels, uint32_t* wide) {
  Widen(packing, stored, units, channels, wide);
}

}  // namespace prepack
