// The kernels for AVX-512 with VBMI, which permutes all bytes of a register at once.

#define PREPACK_LEVEL avx512vbmi
#define PREPACK_AVX512
#define PREPACK_VBMI
#include "prepack/kernels/vectors.h"

#include "prepack/kernels/dense_codes_body.h"
