// The kernels for AVX-512.

#define PREPACK_LEVEL avx512
#define PREPACK_AVX512
#include "prepack/kernels/vectors.h"

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
#include "prepack/kernels/nibble_transpose_body.h"
#include "prepack/kernels/row_sums_body.h"
#include "prepack/kernels/strip_codes_body.h"
#include "prepack/kernels/unit_transpose_body.h"
#include "prepack/kernels/weight_digests_body.h"
