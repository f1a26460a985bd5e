#pragma once

// The bodies of code_rows.h: plain loops, which the compiler vectorises for each level.

namespace prepack::PREPACK_LEVEL {

namespace {

// Ones in the lowest `run` bits of every `stride` bits.
constexpr uint32_t Comb(uint32_t run, uint32_t stride) {
  uint32_t mask = 0;
  for (uint32_t bit = 0; bit < 32; ++bit) mask |= bit % stride < run ? 1U << bit : 0U;
  return mask;
}

// 32 / S codes of W bits, at the low end of `x`, spread to S bits each: the upper half of the codes
// moves up, then the upper quarter of each half, and so on. Bits above the codes are dropped.
template <uint32_t W, uint32_t S, uint32_t Half = 16 / S>
constexpr uint32_t Spread(uint32_t x) {
  if constexpr (W == S || Half == 0) {
    return x;
  } else {
    constexpr uint32_t kLow = Comb(Half * W, 2 * Half * S);
    constexpr uint32_t kHigh = kLow << Half * W;
    return Spread<W, S, Half / 2>((x & kLow) | (x & kHigh) << Half * (S - W));
  }
}
static_assert(Spread<2, 4>(0xE4E4) == 0x32103210);
static_assert(Spread<3, 4>(0xFAC688) == 0x76543210);
static_assert(Spread<1, 8>(0xA) == 0x01000100);
static_assert(Spread<4, 8>(0x4321) == 0x04030201);

// ORs a plane of W bits, shifted left by `offset`, into `out`: `words` words of S-bit codes.
template <uint32_t W, uint32_t S, bool First>
void AddPlane(const uint32_t* plane, uint32_t offset, uint32_t words, size_t channels,
              uint32_t* __restrict out) {
  constexpr uint32_t kCodeBits = 32 / S * W;  // of the plane, per output word
  for (uint32_t m = 0; m < words; ++m) {
    const uint32_t* from = plane + m * kCodeBits / 32 * channels;
    const uint32_t shift = m * kCodeBits % 32;
    uint32_t* __restrict to = out + m * channels;
    for (size_t n = 0; n < channels; ++n) {
      const uint32_t codes = Spread<W, S>(from[n] >> shift) << offset;
      to[n] = First ? codes : to[n] | codes;
    }
  }
}

// Planes A and, where they are not zero, B and C, one after the other.
template <uint32_t A, uint32_t B, uint32_t C, uint32_t S>
void WidenPlanes(const uint32_t* stored, size_t units, uint32_t words, size_t channels,
                 uint32_t* out) {
  const size_t stored_words = words * (32 / S) * (A + B + C) / 32;
  for (size_t unit = 0; unit < units; ++unit) {
    AddPlane<A, S, true>(stored, 0, words, channels, out);
    if constexpr (B > 0) AddPlane<B, S, false>(stored + A * channels, A, words, channels, out);
    if constexpr (C > 0) {
      AddPlane<C, S, false>(stored + (A + B) * channels, A + B, words, channels, out);
    }
    stored += stored_words * channels;
    out += words * channels;
  }
}

// 32 codes of 3 bits: bits 0 … 23, 24 … 47, 48 … 71, 72 … 95 of words a, b, c.
void WidenThree(const uint32_t* stored, size_t units, size_t channels, uint32_t* __restrict out) {
  for (size_t unit = 0; unit < units; ++unit) {
    const uint32_t* a = stored;
    const uint32_t* b = a + channels;
    const uint32_t* c = b + channels;
    for (size_t n = 0; n < channels; ++n) {
      out[n] = Spread<3, 4>(a[n]);
      out[channels + n] = Spread<3, 4>(a[n] >> 24 | b[n] << 8);
      out[2 * channels + n] = Spread<3, 4>(b[n] >> 16 | c[n] << 16);
      out[3 * channels + n] = Spread<3, 4>(c[n] >> 8);
    }
    stored += 3 * channels;
    out += 4 * channels;
  }
}

}  // namespace

void WidenCodes(const CodePacking& packing, const uint32_t* stored, size_t units, size_t channels,
                uint32_t* wide) {
  const uint32_t words = UnitOf(packing).wide_words;
  switch (packing.bits) {
    case 2:
      return WidenPlanes<2, 0, 0, 4>(stored, units, words, channels, wide);
    case 3:
      if (!packing.planar) return WidenThree(stored, units, channels, wide);
      return WidenPlanes<2, 1, 0, 4>(stored, units, words, channels, wide);
    case 4:
      return WidenPlanes<4, 0, 0, 4>(stored, units, words, channels, wide);
    case 5:
      return WidenPlanes<4, 1, 0, 8>(stored, units, words, channels, wide);
    case 6:
      return WidenPlanes<4, 2, 0, 8>(stored, units, words, channels, wide);
    case 7:
      return WidenPlanes<4, 2, 1, 8>(stored, units, words, channels, wide);
    default:
      return WidenPlanes<8, 0, 0, 8>(stored, units, words, channels, wide);
  }
}

}  // namespace prepack::PREPACK_LEVEL
