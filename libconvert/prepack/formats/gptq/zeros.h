#pragma once

// Zero points of GPTQ: packed along N like codes along K, and stored as z or as z − 1.
//
// Where z is 0, writers of z − 1 differ. For z = 7, 0, 9, 15, 1, 0, 8, 3 of 4 bits:
//
//     26f0e7f6   subtracted from the whole word, a borrow crosses fields  (gptqmodel, AutoRound)
//     fffffff6   ORed in as 32-bit numbers: fields above are lost         (AutoGPTQ)
//     27f0e8f6   wrapped field by field                                   (gptqmodel, 3 bits)
//
// Only words with a field of all ones are ambiguous; they are refused unless the producer is known.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/module.h"
#include "prepack/kernels/code_rows.h"

namespace prepack::gptq {

// The constant that a symmetric module of these bits stores.
constexpr uint32_t SymmetricField(uint32_t bits, Zeros zeros) {
  return (1U << (bits - 1)) - (zeros == Zeros::kMinusOne ? 1U : 0U);
}

// What of the settings says how zero points are stored. Every module keeps it, and models have very
// many.
struct ZeroRules {
  explicit ZeroRules(const Settings& settings)
      : zeros(settings.zeros), word_borrow(settings.word_borrow), field_wrap(settings.field_wrap) {}

  Zeros zeros;
  bool word_borrow;
  bool field_wrap;
};

// True when a field of all ones could not be told from the loss of its neighbours.
bool LosesZeros(const ZeroRules& rules, const CodePacking& packing);

// Turns stored words into words of z. Whole units, in place; z − 1 of 3 bits, which cross words, is
// left to ZeroFromField.
void RestoreZeroWords(const ZeroRules& rules, const CodePacking& packing,
                      std::span<uint32_t> words);
// z from a field of restored words.
uint32_t ZeroFromField(const ZeroRules& rules, const CodePacking& packing, uint32_t field);

// Do the zero points of asymmetric modules follow the convention that the config declares? Labels
// are known to lie, and a checkpoint read by the wrong one gives fluent nonsense.
//
// Weights lie around zero, so the mean of (code − stored zero point) is near 0 where z is stored
// and near 1 where z − 1 is. That holds for 2 to 4 bits, module by module; at 8 bits a step of one
// is lost in the noise, and only an asymmetric module whose zero points are all the constant of a
// symmetric one tells. Samples of modules that are too small can be pooled.

struct ZeroSample {
  uint64_t weights = 0;
  int64_t sum = 0;  // of code − stored field
  // All zero points of the first group are what the other convention stores for symmetric modules.
  bool constant_of_other = false;

  double Mean() const;  // requires weights > 0
  ZeroSample& operator+=(const ZeroSample& other);
};

// Looks at a bounded part of a module that DescribeModule has accepted with these settings. A
// module that says nothing (symmetric, say) gives an empty sample.
Result<ZeroSample> SampleZeros(const Checkpoint& checkpoint, const Shape& shape,
                               const GroupOrder& order, const Settings& settings);

// The convention that a sample which is large enough clearly speaks for; nullopt where it does not
// tell.
std::optional<Zeros> ConventionOf(const ZeroSample& sample);

// "a mean of code - stored zero point of 0.998 over 49152 weights"; requires weights > 0.
std::string DescribeSample(const ZeroSample& sample);

// kMalformed ("gptq-zeros-contradict") when a sample that is large enough clearly speaks for the
// other convention than the declared one; a finding ("gptq-zeros-uncertain") when it is nearer to
// the other one. `where` is the module, or the field that declares the convention; `hint` says how
// to declare the other one.
Status CheckZeros(const ZeroSample& sample, Zeros declared, std::string_view where,
                  std::string_view hint, FindingTally& findings);

}  // namespace prepack::gptq
