#pragma once

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
using WidenCodesFn = void(const CodePacking& packing, const uint32_t* stored, size_t units,
                          size_t channels, uint32_t* wide);

// `width` bits from bit `at` on; a code lies in one word or in two neighbours.
inline uint32_t BitsAt(std::span<const uint32_t> words, uint64_t at, uint32_t width) {
  const uint64_t word = at / 32;
  uint64_t pair = words[word];
  if (at % 32 + width > 32) pair |= uint64_t{words[word + 1]} << 32;
  return static_cast<uint32_t>(pair >> at % 32) & ((1U << width) - 1);
}

// Code `i` of one packed bit string, by its closed form: for few codes, and to test the above. All
// words of the unit that holds the code must be there.
inline uint32_t PackedCode(const CodePacking& packing, std::span<const uint32_t> words,
                           uint64_t i) {
  const uint32_t bits = packing.bits;
  const bool in_planes = packing.planar && bits != 2 && bits != 4 && bits != 8;
  if (!in_planes) return BitsAt(words, i * bits, bits);
  const std::span<const uint32_t> unit = words.subspan(i / 32 * bits, bits);
  uint32_t code = 0;
  uint64_t below = 0;  // bits in the planes before this one; a plane of w bits takes w words
  for (const uint32_t width : {4U, 2U, 1U}) {
    if ((bits & width) == 0) continue;
    code |= BitsAt(unit, below * 32 + i % 32 * width, width) << below;
    below += width;
  }
  return code;
}

}  // namespace prepack
