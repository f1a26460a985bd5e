#pragma once

// What code_digests_body.h is made of for AVX2 and NEON: shuffles of bytes look up the lower and
// the upper bytes of weights.

namespace prepack::PREPACK_LEVEL {

namespace {

// The 16 weights of a group: their lower bytes, and their upper ones, in both lanes.
struct WeightTable {
  Vector low;
  Vector high;
};

// The lower bytes of the weights of 16 numbers in the low lane, and the upper ones in the other.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline Vector WeightBytes(Floats first, Floats second, float scale) {
  const Floats factor = RepeatFloat(scale);
  return ZipHalves(ByParity(UpperHalves(RoundedProduct<kRounding>(first, factor),
                                        RoundedProduct<kRounding>(second, factor))));
}

// Of (code − zero) · scale, for all codes after the flip.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline WeightTable NibbleTable(uint32_t flip, float zero, float scale) {
  const Vector codes = Xor(WordsOf<0, 1, 2, 3, 4, 5, 6, 7>(), Numbers32(flip));
  const Vector more = Xor(WordsOf<8, 9, 10, 11, 12, 13, 14, 15>(), Numbers32(flip));
  const Floats less = RepeatFloat(zero);
  const Vector bytes = WeightBytes<kRounding>(SubFloats(ToFloats(codes), less),
                                              SubFloats(ToFloats(more), less), scale);
  return {FirstLanes(bytes, bytes), SecondLanes(bytes, bytes)};
}

// The words of input channels 2j and the next, and of those 16 further.
[[gnu::always_inline]] inline Vector LoadCodes(const uint8_t* codes, size_t stride, size_t j) {
  const uint8_t* words = codes + 2 * j * stride;
  return JoinLanes(LoadTwoWords(words, stride), LoadTwoWords(words + 16 * stride, stride));
}

// Factors of a block as weights come out of the unpacking: each lane has 16 input channels, of
// which `low` holds the first eight.
struct CodeFactors {
  Vector low;
  Vector high;
};

[[gnu::always_inline]] inline CodeFactors LoadFactors(const int16_t* factors) {
  const Vector first = Load(factors);
  const Vector second = Load(factors + kVectorBytes / 2);
  return {FirstLanes(first, second), SecondLanes(first, second)};
}

[[gnu::always_inline]] inline Vector LowCodes(Vector codes) {
  return And(codes, Bytes(0x0F));
}

// Adds the products of the weights that codes stand for, a code below 16 in each byte.
[[gnu::always_inline]] inline Vector AddCodes(Vector sums, Vector codes, const WeightTable& table,
                                              const CodeFactors& factors) {
  const Vector low = ShuffleBytes(table.low, codes);
  const Vector high = ShuffleBytes(table.high, codes);
  sums = Add32(sums, MultiplyPairs(UnpackLow<1>(low, high), factors.low));
  return Add32(sums, MultiplyPairs(UnpackHigh<1>(low, high), factors.high));
}

// The table of a group in memory, as WeightBytes makes it, and the step of its code 0.
struct StoredTable {
  Vector bytes;
  int8_t first;
};

// Of steps that differ by no more than 15.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline StoredTable TableOfSteps(const int8_t* steps, size_t count,
                                                       float scale) {
  const int8_t first = LeastStep(steps, count);
  const Vector eight =
      Add32(Numbers32(static_cast<uint32_t>(int32_t{first})), WordsOf<0, 1, 2, 3, 4, 5, 6, 7>());
  const Vector more = Add32(eight, Numbers32(8));
  return {WeightBytes<kRounding>(ToFloats(eight), ToFloats(more), scale), first};
}

[[gnu::always_inline]] inline WeightTable LoadTable(const StoredTable& table) {
  return {FirstLanes(table.bytes, table.bytes), SecondLanes(table.bytes, table.bytes)};
}

// Of steps that lie side by side.
[[gnu::always_inline]] inline CodeFactors LoadStepFactors(const int16_t* factors) {
  return LoadFactors(factors);
}

// Whole lanes of codes. Returns how many fours of bytes of each output channel these are.
template <Bf16Rounding kRounding>
size_t DigestLines(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                   const int16_t* factors, uint32_t* digests) {
  const size_t bytes = 4 * count / kLaneBytes * kLaneBytes;
  const uint32_t flip = scales.flip;
  for (size_t i = 0; i < kStripChannels; ++i) {
    const WeightTable table = NibbleTable<kRounding>(flip, scales.zeros[i], scales.scales[i]);
    Vector sums = Numbers32(0);
    for (size_t at = 0; at < bytes; at += kLaneBytes) {
      sums = AddCodes(sums, SplitNibbles(codes + i * stride + at), table,
                      LoadFactors(factors + 2 * at));
    }
    digests[i] += DigestOf(sums);
  }
  return bytes / 4;
}

}  // namespace

void DigestNibbleLines(const uint8_t* codes, size_t stride, size_t count,
                       const NibbleScales& scales, const int16_t* factors, uint32_t* digests) {
  size_t done = 0;
  WithRounding<kByInstruction, kNearestOfFinite>(RoundingOf(scales), [&]<Bf16Rounding kRounding>() {
    done = DigestLines<kRounding>(codes, stride, count, scales, factors, digests);
  });
  if (done == count) return;
  Below().digest_nibble_lines(codes + 4 * done, stride, count - done, scales, factors + 8 * done,
                              digests);
}

}  // namespace prepack::PREPACK_LEVEL
