#ifndef PREPACK_KERNELS_CODE_DIGESTS_AVX2_BODY_H_
#define PREPACK_KERNELS_CODE_DIGESTS_AVX2_BODY_H_

// What code_digests_body.h is made of for AVX2: shuffles of bytes look up the lower and the upper
// bytes of weights.

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
  const Vector words = _mm256_permute4x64_epi64(
      _mm256_packus_epi32(_mm256_srli_epi32(first, 16), _mm256_srli_epi32(second, 16)), 0xD8);
  const Vector bytes = _mm256_packus_epi16(And(words, Numbers(0xFF)), ShiftRight<8>(words));
  return {_mm256_permute4x64_epi64(bytes, 0x88), _mm256_permute4x64_epi64(bytes, 0xDD)};
}

template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline Vector RoundedProduct(__m256 numbers, __m256 scale) {
  return ToBF16<kRounding>(BitsOf(_mm256_mul_ps(numbers, scale)));
}

// Of (code − zero) · scale, for codes `first` and `second`, eight each.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline WeightTable NibbleTable(__m256 first, __m256 second, float zero,
                                                      float scale) {
  const __m256 less = _mm256_set1_ps(zero);
  const __m256 factor = _mm256_set1_ps(scale);
  return TableOf(RoundedProduct<kRounding>(_mm256_sub_ps(first, less), factor),
                 RoundedProduct<kRounding>(_mm256_sub_ps(second, less), factor));
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
  return {_mm256_permute2x128_si256(first, second, 0x20),
          _mm256_permute2x128_si256(first, second, 0x31)};
}

// Adds the products of the weights that codes stand for, a code below 16 in each byte.
[[gnu::always_inline]] inline Vector AddCodes(Vector sums, Vector codes, const WeightTable& table,
                                              const CodeFactors& factors) {
  const Vector low = ShuffleBytes(table.low, codes);
  const Vector high = ShuffleBytes(table.high, codes);
  sums = _mm256_add_epi32(sums, _mm256_madd_epi16(UnpackLow<1>(low, high), factors.low));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(UnpackHigh<1>(low, high), factors.high));
}

// The upper halves of the weights have been summed.
[[gnu::always_inline]] inline uint32_t DigestOf(Vector sums) {
  return static_cast<uint32_t>(Total(sums)) << 16;
}

[[gnu::always_inline]] inline int8_t LeastByte(Vector bytes) {
  __m128i least = _mm_min_epi8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  // Of unsigned 16 bits there is an instruction.
  least = _mm_xor_si128(least, _mm_set1_epi8(-128));
  least = _mm_min_epu8(least, _mm_srli_epi16(least, 8));
  least = _mm_minpos_epu16(_mm_and_si128(least, _mm_set1_epi16(0xFF)));
  return static_cast<int8_t>((_mm_cvtsi128_si32(least) & 0xFF) ^ 0x80);
}

// The table of a group in memory, and the step that its code 0 stands for.
struct StoredTable {
  __m128i low;
  __m128i high;
  int8_t first;
};

// Of steps that differ by no more than 15.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline StoredTable TableOfSteps(const int8_t* steps, size_t count,
                                                       float scale) {
  Vector least = Load(steps);
  for (size_t i = kCodes; i < count; i += kCodes) least = _mm256_min_epi8(least, Load(steps + i));
  const int8_t first = LeastByte(least);
  const __m256 factor = _mm256_set1_ps(scale);
  const __m256i eight = _mm256_add_epi32(Numbers32(static_cast<uint32_t>(int32_t{first})),
                                         _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i more = _mm256_add_epi32(eight, Numbers32(8));
  const WeightTable table = TableOf(RoundedProduct<kRounding>(_mm256_cvtepi32_ps(eight), factor),
                                    RoundedProduct<kRounding>(_mm256_cvtepi32_ps(more), factor));
  return {_mm256_castsi256_si128(table.low), _mm256_castsi256_si128(table.high), first};
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
      const Vector codes = _mm256_sub_epi8(Load(steps + j), first);
      all = Or(all, codes);
      sums = AddCodes(sums, codes, table, LoadFactors(factors + j));
    }
  }
  digest = DigestOf(sums);
  return _mm256_testz_si256(all, Bytes(0xF0)) != 0;
}

// Of any steps.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline uint32_t DigestAnySteps(const int8_t* steps, size_t count,
                                                      float scale, const int16_t* factors) {
  const __m256 factor = _mm256_set1_ps(scale);
  Vector digest = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(steps + i));
    const Vector weights =
        RoundedProduct<kRounding>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)), factor);
    const Vector own = _mm256_cvtepi16_epi32(LoadLane(factors + i));
    digest = Sum32(digest, _mm256_mullo_epi32(weights, own));
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
    const __m128i both = LoadLane(bytes + i);
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i even = _mm_and_si128(both, mask);
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
    const __m256i fields =
        _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
    Store(out, _mm256_sub_epi8(fields, less));
  }
  for (; bits == 8 && i + kVectorBytes <= count; i += kVectorBytes, out += kVectorBytes) {
    Store(out, _mm256_sub_epi8(Load(bytes + i), less));
  }
  if (i < count) Below().split_small_fields(bytes + i, count - i, bits, offset, out);
}

uint32_t DigestSmallSteps(const int8_t* steps, size_t count, const int16_t* factors) {
  Vector first = Numbers32(0);
  Vector second = Numbers32(0);
  size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    first = _mm256_add_epi32(
        first, _mm256_madd_epi16(_mm256_cvtepi8_epi16(LoadLane(steps + i)), Load(factors + i)));
    second = _mm256_add_epi32(
        second, _mm256_madd_epi16(_mm256_cvtepi8_epi16(LoadLane(steps + i + kLaneBytes)),
                                  Load(factors + i + kLaneBytes)));
  }
  const auto digest = static_cast<uint32_t>(Total(_mm256_add_epi32(first, second)));
  return digest + Below().digest_small_steps(steps + i, count - i, factors + i);
}

void DigestQuads(const int8_t* quads, size_t stride, size_t count, const int16_t* factors,
                 uint32_t* digests) {
  constexpr size_t kLanesOfQuads = 4 * kStripChannels / kLaneBytes;
  Vector sums[kLanesOfQuads];  // two of each output channel
  for (Vector& sum : sums) sum = Numbers32(0);
  for (size_t j = 0; j < count; ++j) {
    const Vector own =
        _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(factors + 4 * j)));
    for (size_t i = 0; i < kLanesOfQuads; ++i) {
      const Vector numbers = _mm256_cvtepi8_epi16(LoadLane(quads + j * stride + i * kLaneBytes));
      sums[i] = Sum32(sums[i], _mm256_madd_epi16(numbers, own));
    }
  }
  for (size_t i = 0; i < kLanesOfQuads; i += 2, digests += kVectorFloats) {
    const Vector totals = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[i], sums[i + 1]), 0xD8);
    Store(digests, Sum32(Load(digests), totals));
  }
}

namespace {

// Codes 0 to 7, and 8 to 15, after the flip.
struct AllCodes {
  __m256 first;
  __m256 second;
};

[[gnu::always_inline]] inline AllCodes FlippedCodes(uint32_t flip) {
  const Vector mask = Numbers32(flip);
  const Vector first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_cvtepi32_ps(Xor(first, mask)),
          _mm256_cvtepi32_ps(Xor(_mm256_add_epi32(first, Numbers32(8)), mask))};
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
        _mm256_set_m128i(LoadTwoWords(words + 16 * stride, stride), LoadTwoWords(words, stride));
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
      const __m128i both = LoadLane(codes + i * stride + at);
      const Vector nibbles = And(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), Bytes(15));
      // The lanes hold even and odd input channels.
      const __m128i even = _mm256_castsi256_si128(nibbles);
      const __m128i odd = _mm256_extracti128_si256(nibbles, 1);
      sums = AddCodes(sums,
                      _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd)),
                      table, LoadFactors(factors + 2 * at));
    }
    digests[i] += DigestOf(sums);
  }
  return bytes / 4;
}

}  // namespace

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_CODE_DIGESTS_AVX2_BODY_H_
