#ifndef PREPACK_KERNELS_CODE_DIGESTS_LANES_BODY_H_
#define PREPACK_KERNELS_CODE_DIGESTS_LANES_BODY_H_

// What code_digests_body.h is made of for AVX2 and NEON: shuffles of bytes look up the lower and
// the upper bytes of weights.

namespace prepack::PREPACK_LEVEL {

namespace {

// Input channels that a register holds the codes of, a byte each.
constexpr size_t kCodes = 32;

// The 16 weights of a group: their lower bytes, and their upper ones, in both lanes.
struct WeightTable {
  Vector low;
  Vector high;
};

// Of numbers 0 to 15 and 16 more, as the upper halves of bf16.
[[gnu::always_inline]] inline WeightTable TableOf(Vector first, Vector second) {
  const Vector halves = UpperHalves(first, second);
  return {LowerBytes(halves), UpperBytes(halves)};
}

template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline Vector RoundedProduct(Floats numbers, Floats scale) {
  return ToBF16<kRounding>(BitsOf(MultiplyFloats(numbers, scale)));
}

// Of (code − zero) · scale, for codes `first` and `second`, eight each.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline WeightTable NibbleTable(Floats first, Floats second, float zero,
                                                      float scale) {
  const Floats less = RepeatFloat(zero);
  const Floats factor = RepeatFloat(scale);
  return TableOf(RoundedProduct<kRounding>(SubFloats(first, less), factor),
                 RoundedProduct<kRounding>(SubFloats(second, less), factor));
}

// Factors of kCodes input channels as weights come out of the unpacking: each lane has 16 input
// channels, of which `low` holds the first eight.
struct CodeFactors {
  Vector low;
  Vector high;
};

[[gnu::always_inline]] inline CodeFactors LoadFactors(const int16_t* factors) {
  const Vector first = Load(factors);
  const Vector second = Load(factors + kCodes / 2);
  return {FirstLanes(first, second), SecondLanes(first, second)};
}

// Adds the products of the weights that codes stand for, a code below 16 in each byte.
[[gnu::always_inline]] inline Vector AddCodes(Vector sums, Vector codes, const WeightTable& table,
                                              const CodeFactors& factors) {
  const Vector low = ShuffleBytes(table.low, codes);
  const Vector high = ShuffleBytes(table.high, codes);
  sums = Add32(sums, MultiplyPairs(UnpackLow<1>(low, high), factors.low));
  return Add32(sums, MultiplyPairs(UnpackHigh<1>(low, high), factors.high));
}

// The upper halves of the weights have been summed.
[[gnu::always_inline]] inline uint32_t DigestOf(Vector sums) {
  return static_cast<uint32_t>(Total(sums)) << 16;
}

// The table of a group in memory, and the step that its code 0 stands for.
struct StoredTable {
  Lane low;
  Lane high;
  int8_t first;
};

// Of steps that differ by no more than 15.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline StoredTable TableOfSteps(const int8_t* steps, size_t count,
                                                       float scale) {
  Vector least = Load(steps);
  for (size_t i = kCodes; i < count; i += kCodes) least = LesserSigned8(least, Load(steps + i));
  const int8_t first = LeastByte(least);
  const Floats factor = RepeatFloat(scale);
  const Vector eight =
      Add32(Numbers32(static_cast<uint32_t>(int32_t{first})), WordsOf<0, 1, 2, 3, 4, 5, 6, 7>());
  const Vector more = Add32(eight, Numbers32(8));
  const WeightTable table = TableOf(RoundedProduct<kRounding>(ToFloats(eight), factor),
                                    RoundedProduct<kRounding>(ToFloats(more), factor));
  return {LowLane(table.low), LowLane(table.high), first};
}

// Groups whose tables are made before any is used: making one takes long, but several at a time
// take hardly longer.
constexpr size_t kTables = 16;

// At most kTables groups, of a multiple of kCodes steps. False if steps of one differ by more than
// 15: the digest is then none.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline bool DigestNearSteps(const int8_t* steps, size_t count,
                                                   const float* scales, size_t groups,
                                                   const int16_t* factors, uint32_t& digest) {
  StoredTable tables[kTables];
  for (size_t i = 0; i < groups; ++i) {
    tables[i] = TableOfSteps<kRounding>(steps + i * count, count, scales[i]);
  }
  Vector sums = Numbers32(0);
  Vector all = Numbers32(0);
  for (size_t i = 0; i < groups; ++i) {
    const WeightTable table = {Repeat(tables[i].low), Repeat(tables[i].high)};
    const Vector first = Bytes(tables[i].first);
    for (size_t end = (i + 1) * count, j = i * count; j < end; j += kCodes) {
      const Vector codes = Sub8(Load(steps + j), first);
      all = Or(all, codes);
      sums = AddCodes(sums, codes, table, LoadFactors(factors + j));
    }
  }
  digest = DigestOf(sums);
  return IsZero(And(all, Bytes(0xF0)));
}

// Of any steps.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline uint32_t DigestAnySteps(const int8_t* steps, size_t count,
                                                      float scale, const int16_t* factors) {
  const Floats factor = RepeatFloat(scale);
  Vector digest = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const Vector weights = RoundedProduct<kRounding>(ToFloats(WidenEightSigned(steps + i)), factor);
    digest = Add32(digest, Multiply32(weights, WidenNumbers(factors + i)));
  }
  return static_cast<uint32_t>(Total(digest)) +
         Below().digest_small_scaled(steps + i, count - i, &scale, 1, kRounding, factors + i);
}

template <Bf16Rounding kRounding>
uint32_t DigestSmall(const int8_t* steps, size_t count, const float* scales, size_t groups,
                     const int16_t* factors) {
  uint32_t digest = 0;
  size_t i = 0;
  while (i < groups && count != 0 && count % kCodes == 0) {
    const size_t some = groups - i < kTables ? groups - i : kTables;
    uint32_t own = 0;
    if (!DigestNearSteps<kRounding>(steps + i * count, count, scales + i, some, factors + i * count,
                                    own)) {
      break;  // the steps have 8 bits: it is of no use to try further groups
    }
    digest += own;
    i += some;
  }
  for (; i < groups; ++i) {
    digest += DigestAnySteps<kRounding>(steps + i * count, count, scales[i], factors + i * count);
  }
  return digest;
}

}  // namespace

void SplitSmallFields(const uint8_t* bytes, size_t count, uint32_t bits, int32_t offset,
                      int8_t* out) {
  const Vector less = Bytes(offset);
  size_t i = 0;
  for (; bits == 4 && i + kLaneBytes <= count; i += kLaneBytes, out += 2 * kLaneBytes) {
    Store(out, Sub8(SplitNibbles(LoadLane(bytes + i)), less));
  }
  for (; bits == 8 && i + kVectorBytes <= count; i += kVectorBytes, out += kVectorBytes) {
    Store(out, Sub8(Load(bytes + i), less));
  }
  if (i < count) Below().split_small_fields(bytes + i, count - i, bits, offset, out);
}

uint32_t DigestSmallSteps(const int8_t* steps, size_t count, const int16_t* factors) {
  Vector first = Numbers32(0);
  Vector second = Numbers32(0);
  size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    first = Add32(first, MultiplyPairs(WidenSigned(steps + i), Load(factors + i)));
    second = Add32(
        second, MultiplyPairs(WidenSigned(steps + i + kLaneBytes), Load(factors + i + kLaneBytes)));
  }
  const auto digest = static_cast<uint32_t>(Total(Add32(first, second)));
  return digest + Below().digest_small_steps(steps + i, count - i, factors + i);
}

void DigestQuads(const int8_t* quads, size_t stride, size_t count, const int16_t* factors,
                 uint32_t* digests) {
  constexpr size_t kLanesOfQuads = 4 * kStripChannels / kLaneBytes;
  Vector sums[kLanesOfQuads];  // two of each output channel
  for (Vector& sum : sums) sum = Numbers32(0);
  for (size_t j = 0; j < count; ++j) {
    const Vector own = RepeatWord(factors + 4 * j);
    for (size_t i = 0; i < kLanesOfQuads; ++i) {
      const Vector numbers = WidenSigned(quads + j * stride + i * kLaneBytes);
      sums[i] = Add32(sums[i], MultiplyPairs(numbers, own));
    }
  }
#pragma GCC unroll 2
  for (size_t i = 0; i < kLanesOfQuads; i += 2, digests += kVectorFloats) {
    Store(digests, Add32(Load(digests), AddNeighbours(sums[i], sums[i + 1])));
  }
}

namespace {

// Codes 0 to 7, and 8 to 15, after the flip.
struct AllCodes {
  Floats first;
  Floats second;
};

[[gnu::always_inline]] inline AllCodes FlippedCodes(uint32_t flip) {
  const Vector mask = Numbers32(flip);
  const Vector first = WordsOf<0, 1, 2, 3, 4, 5, 6, 7>();
  return {ToFloats(Xor(first, mask)), ToFloats(Xor(Add32(first, Numbers32(8)), mask))};
}

// The codes of a strip for kCodes input channels: a register for each two output channels, of which
// the first has the low nibbles.
struct StripCodes {
  Vector pairs[kStripChannels / 2];
};

[[gnu::always_inline]] inline void TransposeCodes(const uint8_t* codes, size_t stride,
                                                  StripCodes& strip) {
  for (size_t i = 0; i < kStripChannels / 2; ++i) {
    const uint8_t* words = codes + 2 * i * stride;
    strip.pairs[i] =
        JoinLanes(LoadTwoWords(words, stride), LoadTwoWords(words + 16 * stride, stride));
  }
  // From [input channel / 2 | input channel % 2, pair] to [pair | input channel].
  for (int bit = 0; bit < 4; ++bit) RotateIndex<1>(strip.pairs);
}

// What DigestStrip takes: blocks of so many input channels, and how many of them at most are
// digested with the same tables in the registers.
constexpr size_t kBlockCodes = kCodes;
constexpr size_t kMostBlocks = 4;

template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline void DigestStrip(const uint8_t* codes, size_t stride, size_t blocks,
                                               const NibbleScales& scales, const int16_t* factors,
                                               uint32_t* digests) {
  StripCodes strips[kMostBlocks];
  for (size_t block = 0; block < blocks; ++block) {
    TransposeCodes(codes + block * kBlockCodes * stride, stride, strips[block]);
  }
  const AllCodes all = FlippedCodes(scales.flip);
  for (size_t i = 0; i < kStripChannels; i += 2) {
    const WeightTable even =
        NibbleTable<kRounding>(all.first, all.second, scales.zeros[i], scales.scales[i]);
    const WeightTable odd =
        NibbleTable<kRounding>(all.first, all.second, scales.zeros[i + 1], scales.scales[i + 1]);
    Vector even_sums = Numbers32(0);
    Vector odd_sums = Numbers32(0);
    for (size_t block = 0; block < blocks; ++block) {
      const CodeFactors own = LoadFactors(factors + block * kBlockCodes);
      const Vector pair = strips[block].pairs[i / 2];
      even_sums = AddCodes(even_sums, And(pair, Bytes(15)), even, own);
      odd_sums = AddCodes(odd_sums, And(ShiftRight<4>(pair), Bytes(15)), odd, own);
    }
    digests[i] += DigestOf(even_sums);
    digests[i + 1] += DigestOf(odd_sums);
  }
}

// Whole lanes of codes. Returns how many fours of bytes of each output channel these are.
template <Bf16Rounding kRounding>
size_t DigestLines(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                   const int16_t* factors, uint32_t* digests) {
  const size_t bytes = 4 * count / kLaneBytes * kLaneBytes;
  const AllCodes all = FlippedCodes(scales.flip);
  for (size_t i = 0; i < kStripChannels; ++i) {
    const WeightTable table =
        NibbleTable<kRounding>(all.first, all.second, scales.zeros[i], scales.scales[i]);
    Vector sums = Numbers32(0);
    for (size_t at = 0; at < bytes; at += kLaneBytes) {
      sums = AddCodes(sums, SplitNibbles(LoadLane(codes + i * stride + at)), table,
                      LoadFactors(factors + 2 * at));
    }
    digests[i] += DigestOf(sums);
  }
  return bytes / 4;
}

}  // namespace

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_CODE_DIGESTS_LANES_BODY_H_
