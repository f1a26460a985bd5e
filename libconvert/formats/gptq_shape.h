#ifndef PREPACK_FORMATS_GPTQ_SHAPE_H_
#define PREPACK_FORMATS_GPTQ_SHAPE_H_

// The tensors of a GPTQ module and what their shapes say, checked against each other.

#include <cstdint>

#include "formats/gptq_module.h"
#include "formats/module_tensors.h"
#include "kernels/code_rows.h"

namespace prepack {

struct GptqShape {
  CodePacking packing;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t group_size = 0;  // K where there is one group
  uint64_t groups = 0;
  uint64_t zero_words = 0;                // per row of qzeros; may be more than N needs
  const StoredTensor* qweight = nullptr;  // I32 [K · bits / 32, N]
  const StoredTensor* qzeros = nullptr;   // I32 [G, zero_words]
  const StoredTensor* scales = nullptr;   // F16, BF16 or F32 [G, N]
  const StoredTensor* g_idx = nullptr;    // I32 or I64 [K], or nullptr
};

// Words of qzeros that N zero points need.
uint64_t ZeroWordsFor(const CodePacking& packing, uint64_t n);

// kMalformed when a tensor is missing or contradicts the others, and when they are not packed as
// GPTQ does; kUnsupported for what GPTQModel can write and nobody reads.
Result<GptqShape> CheckGptqShape(const Checkpoint& checkpoint, const ModuleTensors& module,
                                 const GptqSettings& settings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_SHAPE_H_
