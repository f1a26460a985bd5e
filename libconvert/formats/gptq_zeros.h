#ifndef PREPACK_FORMATS_GPTQ_ZEROS_H_
#define PREPACK_FORMATS_GPTQ_ZEROS_H_

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
#include <span>

#include "formats/gptq_module.h"
#include "kernels/code_rows.h"

namespace prepack {

// The constant that a symmetric module of these bits stores.
constexpr uint32_t SymmetricField(uint32_t bits, GptqZeros zeros) {
  return (1U << (bits - 1)) - (zeros == GptqZeros::kMinusOne ? 1U : 0U);
}

// What of the settings says how zero points are stored. Every module keeps it, and models have very
// many.
struct GptqZeroRules {
  explicit GptqZeroRules(const GptqSettings& settings)
      : zeros(settings.zeros), word_borrow(settings.word_borrow), field_wrap(settings.field_wrap) {}

  GptqZeros zeros;
  bool word_borrow;
  bool field_wrap;
};

// True when a field of all ones could not be told from the loss of its neighbours.
bool LosesZeros(const GptqZeroRules& rules, const CodePacking& packing);

// Turns stored words into words of z. Whole units, in place; z − 1 of 3 bits, which cross words, is
// left to ZeroFromField.
void RestoreZeroWords(const GptqZeroRules& rules, const CodePacking& packing,
                      std::span<uint32_t> words);
// z from a field of restored words.
uint32_t ZeroFromField(const GptqZeroRules& rules, const CodePacking& packing, uint32_t field);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_ZEROS_H_
