// Every kernel for any CPU: the twins that the others are compared with.

#define PREPACK_LEVEL scalar
#define PREPACK_SCALAR

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "prepack/kernels/dense_fields.h"
#include "prepack/kernels/kernels.h"

namespace prepack::PREPACK_LEVEL {
namespace {

// Two nibbles of each of two rows become the even column and the odd one. Its own inverse.
void SwapNibbles(unsigned first, unsigned second, uint8_t& even, uint8_t& odd) {
  even = static_cast<uint8_t>((first & 0x0FU) | (second & 0x0FU) << 4);
  odd = static_cast<uint8_t>(first >> 4 | (second & 0xF0U));
}

}  // namespace
}  // namespace prepack::PREPACK_LEVEL

#include "prepack/kernels/awq_body.h"
#include "prepack/kernels/bf16_vectors.h"
#include "prepack/kernels/byte_digests_body.h"
#include "prepack/kernels/byte_sort_body.h"
#include "prepack/kernels/code_counts_body.h"
#include "prepack/kernels/code_digests_body.h"
#include "prepack/kernels/code_rows_body.h"
#include "prepack/kernels/dense_codes_body.h"
#include "prepack/kernels/figure_sums_body.h"
#include "prepack/kernels/float_dots_body.h"
#include "prepack/kernels/group_weights_body.h"
#include "prepack/kernels/nibble_columns_body.h"
#include "prepack/kernels/nibble_halves_body.h"
#include "prepack/kernels/nibble_pairs_body.h"
#include "prepack/kernels/nibble_steps_body.h"
#include "prepack/kernels/nibble_transpose_body.h"
#include "prepack/kernels/row_sums_body.h"
#include "prepack/kernels/strip_codes_body.h"
#include "prepack/kernels/strip_products_body.h"
#include "prepack/kernels/unit_transpose_body.h"
#include "prepack/kernels/weight_digests_body.h"
