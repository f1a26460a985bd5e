#pragma once

// The kernels, and the choice between their versions. A kernel X has
//
//     X.h        what it does to bytes, for those who call it
//     X_body.h   its code: the scalar twin, and one body for the vectors of every instruction set
//
// and a row in kernels.inc. kernels_LEVEL.cpp compiles all bodies for a level; vectors.h has the
// registers that they are written for.

#include <cstddef>

#include "prepack/base/isa.h"
#include "prepack/kernels/awq.h"
#include "prepack/kernels/byte_digests.h"
#include "prepack/kernels/byte_sort.h"
#include "prepack/kernels/code_counts.h"
#include "prepack/kernels/code_digests.h"
#include "prepack/kernels/code_rows.h"
#include "prepack/kernels/dense_codes.h"
#include "prepack/kernels/figure_sums.h"
#include "prepack/kernels/float_dots.h"
#include "prepack/kernels/group_weights.h"
#include "prepack/kernels/nibble_columns.h"
#include "prepack/kernels/nibble_halves.h"
#include "prepack/kernels/nibble_pairs.h"
#include "prepack/kernels/nibble_steps.h"
#include "prepack/kernels/nibble_transpose.h"
#include "prepack/kernels/row_sums.h"
#include "prepack/kernels/strip_codes.h"
#include "prepack/kernels/strip_products.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/kernels/weight_digests.h"

namespace prepack {

// The versions for one instruction set. All write the same bytes.
struct KernelTable {
#define PREPACK_KERNEL(type, function, member, avx512, avx512vbmi) type* member = nullptr;
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
};

// `isa` must be supported here.
const KernelTable& KernelsFor(Isa isa);

inline const KernelTable& Kernels() {
  return KernelsFor(ProcessIsa());
}

// The kernel for units of `unit_bytes` = 1, 2, 4 or 8.
TransposeUnitsFn* TransposeUnits(const KernelTable& kernels, size_t unit_bytes);

inline TransposeUnitsFn* TransposeUnits(size_t unit_bytes) {
  return TransposeUnits(Kernels(), unit_bytes);
}

// The functions of each level, for kernels.cpp alone. Those that a level lacks are only declared.
#define PREPACK_KERNEL(type, function, member, avx512_version, avx512vbmi_version) \
  namespace scalar {                                                               \
  type function;                                                                   \
  }                                                                                \
  namespace avx2 {                                                                 \
  type function;                                                                   \
  }                                                                                \
  namespace avx512 {                                                               \
  type function;                                                                   \
  }                                                                                \
  namespace avx512vbmi {                                                           \
  type function;                                                                   \
  }                                                                                \
  namespace neon {                                                                 \
  type function;                                                                   \
  }
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL

}  // namespace prepack
