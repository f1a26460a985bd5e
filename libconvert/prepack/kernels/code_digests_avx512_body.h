#ifndef PREPACK_KERNELS_CODE_DIGESTS_AVX512_BODY_H_
#define PREPACK_KERNELS_CODE_DIGESTS_AVX512_BODY_H_

// What code_digests_body.h is made of for AVX-512, a quarter faster than lanes of AVX2: a shuffle
// of 16-bit numbers looks up whole weights, and reads no more bits of an index than it needs, so
// codes are shifted into place and never masked.

namespace prepack::PREPACK_LEVEL {

namespace {

// Weights come from memory for the first time here, or again after megabytes of others: how far
// ahead they are asked for.
constexpr size_t kAhead = 2048;
constexpr size_t kAheadOfRows = 128;  // rows, where few bytes of each are read

// 16-bit numbers in a register, and so steps of a byte that fill one once they are widened.
constexpr size_t kSmallSteps = 32;

// Numbers kFirst, kFirst + 2, … of one register and then of another.
template <size_t kFirst>
[[gnu::always_inline]] inline Vector EverySecond(Vector first, Vector second) {
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<uint16_t, kSmallSteps> places{};
    for (size_t i = 0; i < kSmallSteps; ++i) places[i] = static_cast<uint16_t>(2 * i + kFirst);
    return places;
  }();
  return _mm512_permutex2var_epi16(first, Load(kPlaces.data()), second);
}

// As f32, whose upper halves are the weights; the lower ones may be anything.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline Vector RoundedProduct(__m512 numbers, __m512 scale) {
  const Vector bits = BitsOf(_mm512_mul_ps(numbers, scale));
  if constexpr (kRounding == Bf16Rounding::kNearestOfFinite) return RoundedUp(bits);
  return ToBF16<kRounding>(bits);
}

// The sum of the products of those weights of a table that the low bits of `codes` name.
[[gnu::always_inline]] inline Vector Products(Vector codes, Vector table, Vector factors) {
  return _mm512_madd_epi16(_mm512_permutexvar_epi16(codes, table), factors);
}

// The sums of the numbers of each register.
[[gnu::always_inline]] inline Vector TotalsOf(const Vector (&sums)[kStripChannels]) {
  static_assert(kStripChannels == 16);
  Vector fours[4];
  for (size_t i = 0; i < 4; ++i) {
    const Vector* from = sums + 4 * i;
    const Vector first = Add32(UnpackLow<4>(from[0], from[1]), UnpackHigh<4>(from[0], from[1]));
    const Vector second = Add32(UnpackLow<4>(from[2], from[3]), UnpackHigh<4>(from[2], from[3]));
    fours[i] = Add32(UnpackLow<8>(first, second), UnpackHigh<8>(first, second));
  }
  // Now each lane has a part of the sums of four registers.
  const auto add_lanes = [](Vector a, Vector b) {
    return Add32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
  };
  return add_lanes(add_lanes(fours[0], fours[1]), add_lanes(fours[2], fours[3]));
}

// The upper halves of the weights have been summed.
[[gnu::always_inline]] inline void AddDigests(const Vector (&sums)[kStripChannels],
                                              uint32_t* digests) {
  Store(digests, Add32(Load(digests), _mm512_slli_epi32(TotalsOf(sums), 16)));
}

}  // namespace

void SplitSmallFields(const uint8_t* bytes, size_t count, uint32_t bits, int32_t offset,
                      int8_t* out) {
  const Vector less = Bytes(offset);
  constexpr size_t kHalf = kVectorBytes / 2;
  size_t i = 0;
  for (; bits == 4 && i + kHalf <= count; i += kHalf, out += kVectorBytes) {
    PrefetchRows(bytes + i + kAhead, 0, 1, kHalf);
    const Vector words =
        _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i)));
    const Vector spread = Select(Numbers(0x0F00), ShiftLeft<4>(words), words);
    Store(out, _mm512_sub_epi8(And(spread, Numbers(0x0F0F)), less));
  }
  for (; bits == 8 && i + kVectorBytes <= count; i += kVectorBytes, out += kVectorBytes) {
    PrefetchRows(bytes + i + kAhead, 0, 1, kVectorBytes);
    Store(out, _mm512_sub_epi8(Load(bytes + i), less));
  }
  if (i < count) Below().split_small_fields(bytes + i, count - i, bits, offset, out);
}

namespace {

[[gnu::always_inline]] inline Vector LoadSteps(const int8_t* steps) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(steps)));
}

}  // namespace

uint32_t DigestSmallSteps(const int8_t* steps, size_t count, const int16_t* factors) {
  Vector first = Numbers32(0);
  Vector second = Numbers32(0);
  size_t i = 0;
  for (; i + 2 * kSmallSteps <= count; i += 2 * kSmallSteps) {
    first = Add32(first, _mm512_madd_epi16(LoadSteps(steps + i), Load(factors + i)));
    second = Add32(second, _mm512_madd_epi16(LoadSteps(steps + i + kSmallSteps),
                                             Load(factors + i + kSmallSteps)));
  }
  const auto digest = static_cast<uint32_t>(Total(Add32(first, second)));
  return digest + Below().digest_small_steps(steps + i, count - i, factors + i);
}

void DigestQuads(const int8_t* quads, size_t stride, size_t count, const int16_t* factors,
                 uint32_t* digests) {
  Vector first = Numbers32(0);  // two sums of each output channel
  Vector second = Numbers32(0);
  for (size_t j = 0; j < count; ++j, quads += stride) {
    PrefetchRows(quads + kAhead, 0, 1, 2 * kSmallSteps);
    int64_t four = 0;
    __builtin_memcpy(&four, factors + 4 * j, sizeof four);
    const Vector own = _mm512_set1_epi64(four);
    first = Add32(first, _mm512_madd_epi16(LoadSteps(quads), own));
    second = Add32(second, _mm512_madd_epi16(LoadSteps(quads + kSmallSteps), own));
  }
  const Vector even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const Vector odd = Add32(even, Numbers32(1));
  const Vector totals = Add32(_mm512_permutex2var_epi32(first, even, second),
                              _mm512_permutex2var_epi32(first, odd, second));
  Store(digests, Add32(Load(digests), totals));
}

namespace {

// Codes 0 to 15, after the flip.
[[gnu::always_inline]] inline __m512 FlippedCodes(uint32_t flip) {
  const Vector codes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_cvtepi32_ps(Xor(codes, Numbers32(flip)));
}

// The 16 weights of a group, twice: the fifth bit of an index, which is that of another code, does
// not matter.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline Vector NibbleTable(__m512 codes, float zero, float scale) {
  const Vector weights =
      RoundedProduct<kRounding>(_mm512_sub_ps(codes, _mm512_set1_ps(zero)), _mm512_set1_ps(scale));
  return EverySecond<1>(weights, weights);
}

// What DigestStrip takes: blocks of so many input channels, whose codes for one pair of output
// channels a register holds, a byte each; and how many blocks at most are digested with the same
// tables in the registers.
constexpr size_t kBlockCodes = kVectorBytes;
constexpr size_t kMostBlocks = 2;

// The codes of a strip for kBlockCodes input channels: a register for each two output channels, of
// which the first has the low nibbles. In lane i lie input channels 8j + 2i and the next, for each
// j.
struct StripCodes {
  Vector pairs[kStripChannels / 2];
};

// The codes of eight input channels.
[[gnu::always_inline]] inline Vector LoadEightWords(const uint8_t* words, size_t stride) {
  if (stride == sizeof(uint64_t)) {
    PrefetchRows(words + kAhead, 0, 1, kVectorBytes);
    return Load(words);
  }
  PrefetchRows(words + kAheadOfRows * stride, stride, 8, 1);
  return JoinLanes(LoadTwoWords(words, stride), LoadTwoWords(words + 2 * stride, stride),
                   LoadTwoWords(words + 4 * stride, stride),
                   LoadTwoWords(words + 6 * stride, stride));
}

[[gnu::always_inline]] inline void TransposeCodes(const uint8_t* codes, size_t stride,
                                                  StripCodes& strip) {
  for (size_t i = 0; i < kStripChannels / 2; ++i) {
    strip.pairs[i] = LoadEightWords(codes + 8 * i * stride, stride);
  }
  // From [input channel / 8 | input channel % 2, pair] to [pair | input channel / 8, % 2].
  for (int bit = 0; bit < 4; ++bit) RotateIndex<1>(strip.pairs);
}

// Factors of kBlockCodes input channels in the order of StripCodes, of even and of odd ones.
struct PairFactors {
  Vector even;
  Vector odd;
};

[[gnu::always_inline]] inline PairFactors LoadPairFactors(const int16_t* factors) {
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<uint16_t, kSmallSteps> places{};
    for (size_t i = 0; i < kSmallSteps; ++i) {
      places[i] = static_cast<uint16_t>(8 * (i % 8) + 2 * (i / 8));
    }
    return places;
  }();
  const Vector first = Load(factors);
  const Vector second = Load(factors + kSmallSteps);
  const Vector even = Load(kPlaces.data());
  return {_mm512_permutex2var_epi16(first, even, second),
          _mm512_permutex2var_epi16(first, Add16(even, Numbers(1)), second)};
}

template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline void DigestStrip(const uint8_t* codes, size_t stride, size_t blocks,
                                               const NibbleScales& scales, const int16_t* factors,
                                               uint32_t* digests) {
  StripCodes strips[kMostBlocks];
  PairFactors own[kMostBlocks];
  for (size_t block = 0; block < blocks; ++block) {
    TransposeCodes(codes + block * kBlockCodes * stride, stride, strips[block]);
    own[block] = LoadPairFactors(factors + block * kBlockCodes);
  }
  const __m512 all = FlippedCodes(scales.flip);
  Vector sums[kStripChannels];
  for (size_t i = 0; i < kStripChannels; i += 2) {
    const Vector even = NibbleTable<kRounding>(all, scales.zeros[i], scales.scales[i]);
    const Vector odd = NibbleTable<kRounding>(all, scales.zeros[i + 1], scales.scales[i + 1]);
    sums[i] = Numbers32(0);
    sums[i + 1] = Numbers32(0);
    for (size_t block = 0; block < blocks; ++block) {
      const Vector pair = strips[block].pairs[i / 2];
      const Vector factors_even = own[block].even;
      const Vector factors_odd = own[block].odd;
      sums[i] = Add32(sums[i], Add32(Products(pair, even, factors_even),
                                     Products(ShiftRight<8>(pair), even, factors_odd)));
      sums[i + 1] = Add32(sums[i + 1], Add32(Products(ShiftRight<4>(pair), odd, factors_even),
                                             Products(ShiftRight<12>(pair), odd, factors_odd)));
    }
  }
  AddDigests(sums, digests);
}

}  // namespace

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_CODE_DIGESTS_AVX512_BODY_H_
