// The version for any CPU, the choice between the versions, and the closed form.

#include "prepack/kernels/code_rows.h"

#include "prepack/base/isa.h"
#include "prepack/kernels/code_rows_loops.h"

namespace prepack {
namespace {

// `width` bits from bit `at` on; a code lies in one word or in two neighbours.
uint32_t BitsAt(std::span<const uint32_t> words, uint64_t at, uint32_t width) {
  const uint64_t word = at / 32;
  uint64_t pair = words[word];
  if (at % 32 + width > 32) pair |= uint64_t{words[word + 1]} << 32;
  return static_cast<uint32_t>(pair >> at % 32) & ((1U << width) - 1);
}

}  // namespace

void WidenCodesScalar(const CodePacking& packing, const uint32_t* stored, size_t units,
                      size_t channels, uint32_t* wide) {
  Widen(packing, stored, units, channels, wide);
}

WidenCodesFn WidenCodesFor(Isa isa) {
  static constexpr IsaVersion<WidenCodesFn> kVersions[] = {
      {Isa::kScalar, WidenCodesScalar},
      {Isa::kAvx2, WidenCodesAvx2},
      {Isa::kAvx512, WidenCodesAvx512},
  };
  return BestVersion(kVersions, isa);
}

uint32_t PackedCode(const CodePacking& packing, std::span<const uint32_t> words, uint64_t i) {
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
