#ifndef PREPACK_FORMATS_GPTQ_EVIDENCE_H_
#define PREPACK_FORMATS_GPTQ_EVIDENCE_H_

// Do the zero points of asymmetric modules follow the convention that the config declares? Labels
// are known to lie, and a checkpoint read by the wrong one gives fluent nonsense.
//
// Weights lie around zero, so the mean of (code − stored zero point) is near 0 where z is stored
// and near 1 where z − 1 is. That holds for 2 and 4 bits; at 8 bits a step of one is lost in the
// noise. One module may be skewed; a label holds for a whole checkpoint, so samples of all its
// modules are pooled before anything is concluded.

#include <cstdint>
#include <string_view>

#include "formats/gptq_module.h"

namespace prepack {

struct GptqZeroSample {
  uint64_t weights = 0;
  int64_t sum = 0;  // of code − stored field

  double Mean() const;  // requires weights > 0
  GptqZeroSample& operator+=(const GptqZeroSample& other);
};

// Looks at a bounded part of a module that DescribeGptqModule has accepted with these settings. A
// module that says nothing (symmetric, or not 2 or 4 bits) gives an empty sample.
Result<GptqZeroSample> SampleGptqZeros(const Checkpoint& checkpoint, const ModuleTensors& module,
                                       const GptqSettings& settings);

// kMalformed ("gptq-zeros-contradict") when a sample that is large enough clearly speaks for the
// other convention than the declared one. `where` is the field that declares it.
Status CheckGptqZeros(const GptqZeroSample& sample, GptqZeros declared, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_EVIDENCE_H_
