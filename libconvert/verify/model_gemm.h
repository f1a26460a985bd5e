#ifndef PREPACK_VERIFY_MODEL_GEMM_H_
#define PREPACK_VERIFY_MODEL_GEMM_H_

// A GEMM on a packed module by the model of the consumer's kernel (gemm/kernel_model.h), which
// walks the packed bytes as the kernel does.

#include "base/progress.h"
#include "base/result.h"
#include "verify/gemm_truth.h"
#include "verify/packed_folder.h"
#include "verify/second_decoder.h"

namespace prepack {

// Runs on the calling thread: only there can a mapped file shrink without harm. Takes no copy of
// the weight, but of the module's other parts, of y (f32 [M, N]), and of a panel of decoded weights
// in f64: for each module that is multiplied at the same time, some percent of its packed size.
//
// kUnsupported when there is no model for such a module; kMalformed when the module, or the source
// by the second path, cannot be right.
Result<GemmSums> MultiplyByModel(const PackedModule& packed, const SecondDecoder& source,
                                 Progress& progress);

}  // namespace prepack

#endif  // PREPACK_VERIFY_MODEL_GEMM_H_
