// The scalar twin, which works on half a run at a time, and the choice between the versions.

#include "prepack/kernels/awq_gemv_fast.h"

#include "prepack/base/isa.h"

namespace prepack {
namespace {

// Four of the 16-bit numbers of a run as one: a 4 × 4 matrix of nibbles, row r in bits 16·r ….
uint64_t LoadQuarter(const uint8_t* bytes) {
  uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// Transposes that matrix: first inside its 2 × 2 blocks, then the blocks.
uint64_t Transpose(uint64_t x) {
  const uint64_t inner = (x ^ (x >> 12)) & 0x0000F0F00000F0F0U;
  x ^= inner ^ (inner << 12);
  const uint64_t outer = (x ^ (x >> 24)) & 0x00000000FF00FF00U;
  return x ^ outer ^ (outer << 24);
}

}  // namespace

void UnpackGemvFastScalar(const uint8_t* stored, size_t chunks, uint8_t* unpacked) {
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    for (size_t run = 0; run < 2; ++run) {
      const uint8_t* from = stored + chunk * kGemvFastChunkBytes + run * 16;
      uint8_t* to = unpacked + chunk * kGemvFastRowBytes + run * 16;
      const uint64_t lower = Transpose(LoadQuarter(from));      // numbers 0 … 3
      const uint64_t upper = Transpose(LoadQuarter(from + 8));  // numbers 4 … 7
      // Nibble i of the numbers: inputs 8·i …, four from each half.
      for (size_t i = 0; i < 4; ++i) {
        to[4 * i] = static_cast<uint8_t>(lower >> (16 * i));
        to[4 * i + 1] = static_cast<uint8_t>(lower >> (16 * i + 8));
        to[4 * i + 2] = static_cast<uint8_t>(upper >> (16 * i));
        to[4 * i + 3] = static_cast<uint8_t>(upper >> (16 * i + 8));
      }
    }
  }
}

UnpackGemvFastFn UnpackGemvFastFor(Isa isa) {
  static constexpr IsaVersion<UnpackGemvFastFn> kVersions[] = {
      {Isa::kScalar, UnpackGemvFastScalar},
      {Isa::kAvx2, UnpackGemvFastAvx2},
      {Isa::kAvx512, UnpackGemvFastAvx512},
  };
  return BestVersion(kVersions, isa);
}

}  // namespace prepack
