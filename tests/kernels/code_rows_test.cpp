// Codes of any width are widened to where the closed form says, on every instruction set.

#include "prepack/kernels/code_rows.h"

#include "catch.h"
#include "kernels/edge_buffer.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

void CheckWiden(Isa isa, const CodePacking& packing, size_t units, size_t channels,
                SplitMix64& random) {
  CAPTURE(IsaName(isa), packing.bits, packing.planar, units, channels);
  const CodeUnit unit = UnitOf(packing);
  const EdgeBuffer stored(units * unit.stored_words * channels * sizeof(uint32_t), random);
  const EdgeBuffer wide(units * unit.wide_words * channels * sizeof(uint32_t));
  const auto* words = reinterpret_cast<const uint32_t*>(stored.data());
  const auto* found = reinterpret_cast<const uint32_t*>(wide.data());
  KernelsFor(isa).widen_codes(packing, words, units, channels,
                              reinterpret_cast<uint32_t*>(wide.data()));
  const size_t per_word = WideCodesPerWord(packing.bits);
  const size_t width = 32 / per_word;
  for (size_t n = 0; n < channels; ++n) {
    std::vector<uint32_t> string;  // the stored words of the channel
    for (size_t r = 0; r < units * unit.stored_words; ++r)
      string.push_back(words[r * channels + n]);
    for (size_t i = 0; i < units * unit.codes; ++i) {
      const uint32_t word = found[i / per_word * channels + n];
      const uint32_t code = word >> i % per_word * width & ((1U << width) - 1);
      REQUIRE(code == PackedCode(packing, string, i));
    }
  }
}

TEST_CASE("packed codes are widened as the closed form says, on every instruction set") {
  SplitMix64 random(41);
  for (const Isa isa : SupportedIsas()) {
    for (const uint32_t bits : {2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
      for (const bool planar : {false, true}) {
        if (!planar && bits >= 5 && bits <= 7) continue;
        for (const size_t channels : Sizes{1, 8, 37}) {
          for (const size_t units : Sizes{1, 3}) {
            CheckWiden(isa, {.bits = bits, .planar = planar}, units, channels, random);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
