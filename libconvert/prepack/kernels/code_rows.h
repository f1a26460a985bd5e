#ifndef PREPACK_KERNELS_CODE_ROWS_H_
#define PREPACK_KERNELS_CODE_ROWS_H_

// Codes that are packed along K, for many output channels side by side: row r is the r-th word of
// every channel's bit string. Here such rows are brought to the width of the canonical layout, four
// bits or eight. All channels go through the same steps, so everything is a plain loop over
// channels that the compiler vectorises, once per instruction set.
//
// A unit is the shortest run of codes that fills whole words:
//
//     bits     codes   stored words → wide words
//     4, 8     8, 4    1 → 1   (the same words)
//     2        16      1 → 2
//     3        32      3 → 4   a bit string: code i at bits 3i of the three words
//     planar   32      b → 4 or 8: bit planes, widths 3 = 2+1, 5 = 4+1, 6 = 4+2, 7 = 4+2+1, low
//                      plane first; in a plane of width w, code i is in word i / (32 / w) at bit
//                      w · (i mod (32 / w))

#include <cstddef>
#include <cstdint>
#include <span>

#include "prepack/base/isa.h"

namespace prepack {

struct CodePacking {
  uint32_t bits = 4;    // 2, 3, 4, 8, or 2 to 8 when planar
  bool planar = false;  // for 2, 4 and 8 bits it makes no difference

  friend bool operator==(const CodePacking&, const CodePacking&) = default;
};

struct CodeUnit {
  uint32_t codes;
  uint32_t stored_words;
  uint32_t wide_words;
};

constexpr CodeUnit UnitOf(const CodePacking& packing) {
  const uint32_t bits = packing.bits;
  if (bits == 4 || bits == 8) return {32 / bits, 1, 1};
  if (bits == 2) return {16, 1, 2};
  return {32, bits, bits <= 4 ? 4U : 8U};
}

// Widened codes per word.
constexpr uint32_t WideCodesPerWord(uint32_t bits) {
  return bits <= 4 ? 8 : 4;
}

// `stored` [units · stored_words, channels] → `wide` [units · wide_words, channels].
using WidenCodesFn = void (*)(const CodePacking& packing, const uint32_t* stored, size_t units,
                              size_t channels, uint32_t* wide);

// The version for one instruction set, which must be supported here. All write the same bytes.
WidenCodesFn WidenCodesFor(Isa isa = ProcessIsa());

void WidenCodesScalar(const CodePacking& packing, const uint32_t* stored, size_t units,
                      size_t channels, uint32_t* wide);
void WidenCodesAvx2(const CodePacking& packing, const uint32_t* stored, size_t units,
                    size_t channels, uint32_t* wide);
void WidenCodesAvx512(const CodePacking& packing, const uint32_t* stored, size_t units,
                      size_t channels, uint32_t* wide);

// Code `i` of one packed bit string, by its closed form: for few codes, and to test the above. All
// words of the unit that holds the code must be there.
uint32_t PackedCode(const CodePacking& packing, std::span<const uint32_t> words, uint64_t i);

}  // namespace prepack

#endif  // PREPACK_KERNELS_CODE_ROWS_H_
