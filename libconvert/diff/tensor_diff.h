#ifndef PREPACK_DIFF_TENSOR_DIFF_H_
#define PREPACK_DIFF_TENSOR_DIFF_H_

// Tensors that belong to no quantized module: embeddings, norms, biases. Of the same dtype, they
// are identical when their bytes are; floats of different dtypes, when their values are.

#include <cstdint>

#include "container/checkpoint.h"
#include "diff/module_diff.h"

namespace prepack {

struct TensorDifferences {
  DiffVerdict verdict = DiffVerdict::kIdentical;
  uint64_t elements = 0;    // that differ; 0 where elements are not compared (sub-byte dtypes)
  double max_absolute = 0;  // of floats
};

// Both must exist.
Result<TensorDifferences> CompareTensors(const Checkpoint& a, const StoredTensor& tensor_a,
                                         const Checkpoint& b, const StoredTensor& tensor_b);

}  // namespace prepack

#endif  // PREPACK_DIFF_TENSOR_DIFF_H_
