#ifndef PREPACK_FORMATS_GPTQ_EVIDENCE_H_
#define PREPACK_FORMATS_GPTQ_EVIDENCE_H_

// Do the zero points of asymmetric modules follow the convention that the config declares? Labels
// are known to lie, and a checkpoint read by the wrong one gives fluent nonsense.
//
// Weights lie around zero, so the mean of (code − stored zero point) is near 0 where z is stored
// and near 1 where z − 1 is. That holds for 2 to 4 bits, module by module; at 8 bits a step of one
// is lost in the noise, and only an asymmetric module whose zero points are all the constant of a
// symmetric one tells. Samples of modules that are too small can be pooled.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/finding_tally.h"
#include "formats/gptq_module.h"

namespace prepack {

struct GptqZeroSample {
  uint64_t weights = 0;
  int64_t sum = 0;  // of code − stored field
  // All zero points of the first group are what the other convention stores for symmetric modules.
  bool constant_of_other = false;

  double Mean() const;  // requires weights > 0
  GptqZeroSample& operator+=(const GptqZeroSample& other);
};

// Looks at a bounded part of a module that DescribeGptqModule has accepted with these settings. A
// module that says nothing (symmetric, say) gives an empty sample.
Result<GptqZeroSample> SampleGptqZeros(const Checkpoint& checkpoint, const ModuleTensors& module,
                                       const GptqSettings& settings);

// The convention that a sample which is large enough clearly speaks for; nullopt where it does not
// tell.
std::optional<GptqZeros> ConventionOf(const GptqZeroSample& sample);

// "a mean of code - stored zero point of 0.998 over 49152 weights"; requires weights > 0.
std::string DescribeGptqZeroSample(const GptqZeroSample& sample);

// kMalformed ("gptq-zeros-contradict") when a sample that is large enough clearly speaks for the
// other convention than the declared one; a finding ("gptq-zeros-uncertain") when it is nearer to
// the other one. `where` is the module, or the field that declares the convention; `hint` says how
// to declare the other one.
Status CheckGptqZeros(const GptqZeroSample& sample, GptqZeros declared, std::string_view where,
                      std::string_view hint, FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_EVIDENCE_H_
