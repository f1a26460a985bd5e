#include "formats/gptq_zeros.h"

namespace prepack {

bool LosesZeros(const GptqZeroRules& rules, const CodePacking& packing) {
  if (rules.zeros == GptqZeros::kStored) return false;
  return packing.bits == 3 ? !rules.field_wrap : !rules.word_borrow;
}

void RestoreZeroWords(const GptqZeroRules& rules, const CodePacking& packing,
                      std::span<uint32_t> words) {
  if (rules.zeros == GptqZeros::kStored || packing.bits == 3) return;
  // A one in every field: 0x11111111 for 4 bits. Modulo 2^32, as the writer subtracted it.
  const uint32_t ones = 0xFFFFFFFFU / ((1U << packing.bits) - 1);
  for (uint32_t& word : words) word += ones;
}

uint32_t ZeroFromField(const GptqZeroRules& rules, const CodePacking& packing, uint32_t field) {
  const bool add = rules.zeros == GptqZeros::kMinusOne && packing.bits == 3;
  return add ? (field + 1) & 7U : field;
}

}  // namespace prepack
