#pragma once

// What code_digests_body.h is made of for AVX-512, a quarter faster than lanes of AVX2: a shuffle
// of 16-bit numbers looks up whole weights, and reads no more bits of an index than it needs, so
// codes are shifted into place and never masked.

namespace prepack::PREPACK_LEVEL {

namespace {

// Of each 16-bit number of a register, the place where it is found in another, or in two.
struct DigestPlaces {
  alignas(kVectorBytes) uint16_t weights[kVectorBytes / 2];  // the upper halves of 16 floats, twice
  alignas(
      kVectorBytes) uint16_t factors[kVectorBytes / 2];  // of even input channels, see LoadCodes
  alignas(kVectorBytes) uint16_t side_by_side[kVectorBytes / 2];  // the same of LoadStepFactors
  constexpr DigestPlaces() : weights(), factors(), side_by_side() {
    for (size_t i = 0; i < kVectorBytes / 2; ++i) {
      weights[i] = static_cast<uint16_t>(2 * (i % 16) + 1);
      factors[i] = static_cast<uint16_t>(8 * (i % 8) + 2 * (i / 8));
      side_by_side[i] = static_cast<uint16_t>(2 * i);
    }
  }
};
constexpr DigestPlaces kDigestPlaces;

// The 16 weights of a group, twice: the fifth bit of an index, which is that of another code, does
// not matter.
using WeightTable = Vector;

// Of (code − zero) · scale, for all codes after the flip.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline WeightTable NibbleTable(uint32_t flip, float zero, float scale) {
  const Vector codes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const Floats numbers = SubFloats(ToFloats(Xor(codes, Numbers32(flip))), RepeatFloat(zero));
  return _mm512_permutexvar_epi16(Load(kDigestPlaces.weights),
                                  RoundedProduct<kRounding>(numbers, RepeatFloat(scale)));
}

// The words of eight input channels: lane i gets those of channels 8j + 2i and the next.
[[gnu::always_inline]] inline Vector LoadCodes(const uint8_t* codes, size_t stride, size_t j) {
  const uint8_t* words = codes + 8 * j * stride;
  if (stride == sizeof(uint64_t)) return Load(words);
  return JoinLanes(LoadTwoWords(words, stride), LoadTwoWords(words + 2 * stride, stride),
                   LoadTwoWords(words + 4 * stride, stride),
                   LoadTwoWords(words + 6 * stride, stride));
}

// Factors of a block in that order, of even and of odd input channels.
struct CodeFactors {
  Vector even;
  Vector odd;
};

// `even`: the places of those of even input channels among 64.
[[gnu::always_inline]] inline CodeFactors TakeFactors(const int16_t* factors, Vector even) {
  const Vector first = Load(factors);
  const Vector second = Load(factors + kVectorBytes / 2);
  return {_mm512_permutex2var_epi16(first, even, second),
          _mm512_permutex2var_epi16(first, Add16(even, Numbers(1)), second)};
}

[[gnu::always_inline]] inline CodeFactors LoadFactors(const int16_t* factors) {
  return TakeFactors(factors, Load(kDigestPlaces.factors));
}

// Of steps that lie side by side.
[[gnu::always_inline]] inline CodeFactors LoadStepFactors(const int16_t* factors) {
  return TakeFactors(factors, Load(kDigestPlaces.side_by_side));
}

[[gnu::always_inline]] inline Vector LowCodes(Vector codes) {
  return codes;
}

// Adds the products of the weights that the codes in the low halves of bytes stand for.
[[gnu::always_inline]] inline Vector AddCodes(Vector sums, Vector codes, WeightTable table,
                                              const CodeFactors& factors) {
  const Vector even = _mm512_permutexvar_epi16(codes, table);
  const Vector odd = _mm512_permutexvar_epi16(ShiftRight<8>(codes), table);
  return Add32(sums, Add32(MultiplyPairs(even, factors.even), MultiplyPairs(odd, factors.odd)));
}

// The table of a group, and the step of its code 0.
struct StoredTable {
  WeightTable weights;
  int8_t first;
};

// Of steps that differ by no more than 15.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline StoredTable TableOfSteps(const int8_t* steps, size_t count,
                                                       float scale) {
  const int8_t first = LeastStep(steps, count);
  return {NibbleTable<kRounding>(0, -static_cast<float>(first), scale), first};
}

[[gnu::always_inline]] inline WeightTable LoadTable(const StoredTable& table) {
  return table.weights;
}

}  // namespace

}  // namespace prepack::PREPACK_LEVEL
