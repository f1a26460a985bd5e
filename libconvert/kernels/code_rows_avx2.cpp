#include "kernels/code_rows.h"
#include "kernels/code_rows_loops.h"

namespace prepack {

const CodeRowKernels kCodeRowsAvx2 = {Widen, GatherBytes};

}  // namespace prepack
