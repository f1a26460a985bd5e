#pragma once

// The bodies of byte_digests.h. The 256 weights fill eight registers of AVX-512, of which a shuffle
// looks codes up in two. AVX2 and NEON have no shuffle of so many numbers, and leave all of it to
// the scalar twin.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

uint32_t DigestOfByte(const ByteWeights& weights, uint8_t code, int16_t factor) {
  return uint32_t{weights.upper[code]} * static_cast<uint16_t>(factor);
}

}  // namespace

uint32_t DigestBytes(const uint8_t* codes, size_t count, const ByteWeights& weights,
                     const int16_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < count; ++i) digest += DigestOfByte(weights, codes[i], factors[i]);
  return digest << 16;
}

void DigestBytePairs(const uint8_t* pairs, size_t stride, size_t count, const ByteWeights& weights,
                     const int16_t* factors, uint32_t* digests) {
  uint32_t sums[kBytePairChannels] = {};
  for (size_t j = 0; j < count; ++j) {
    const uint8_t* pair = pairs + j * stride;
    for (size_t i = 0; i < kBytePairChannels; ++i) {
      sums[i] += DigestOfByte(weights, pair[2 * i], factors[2 * j]) +
                 DigestOfByte(weights, pair[2 * i + 1], factors[2 * j + 1]);
    }
  }
  for (size_t i = 0; i < kBytePairChannels; ++i) digests[i] += sums[i] << 16;
}

#elif defined(PREPACK_AVX512)

namespace {

constexpr size_t kVectorHalves = kVectorBytes / 2;  // numbers of 16 bits
constexpr size_t kBytesAhead = 2048;                // how far ahead of the work memory is asked for

class ByteTable {
 public:
  explicit ByteTable(const ByteWeights& weights) {
    for (size_t i = 0; i < 8; ++i) reg_[i] = Load(weights.upper + i * kVectorHalves);
  }

  // Of the codes in the low halves of numbers; the high halves do not matter.
  [[gnu::always_inline]] Vector Of(__m512i codes) const {
    const __mmask32 sixth = _mm512_test_epi16_mask(codes, Numbers(0x40));
    const __mmask32 seventh = _mm512_test_epi16_mask(codes, Numbers(0x80));
    const __m512i positive = _mm512_mask_blend_epi16(sixth, Quarter<0>(codes), Quarter<1>(codes));
    const __m512i negative = _mm512_mask_blend_epi16(sixth, Quarter<2>(codes), Quarter<3>(codes));
    return _mm512_mask_blend_epi16(seventh, positive, negative);
  }

 private:
  template <size_t kQuarter>
  [[gnu::always_inline]] __m512i Quarter(__m512i codes) const {
    return _mm512_permutex2var_epi16(reg_[2 * kQuarter], codes, reg_[2 * kQuarter + 1]);
  }

  Vector reg_[8];
};

}  // namespace

uint32_t DigestBytes(const uint8_t* codes, size_t count, const ByteWeights& weights,
                     const int16_t* factors) {
  const ByteTable table(weights);
  Vector sums = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorHalves <= count; i += kVectorHalves) {
    sums = Add32(sums, MultiplyPairs(table.Of(WidenSigned(codes + i)), Load(factors + i)));
  }
  const uint32_t digest = static_cast<uint32_t>(Total(sums)) << 16;
  return digest + Below().digest_bytes(codes + i, count - i, weights, factors + i);
}

void DigestBytePairs(const uint8_t* pairs, size_t stride, size_t count, const ByteWeights& weights,
                     const int16_t* factors, uint32_t* digests) {
  static_assert(kBytePairChannels == kVectorHalves);
  const ByteTable table(weights);
  Vector even = Numbers32(0);  // of each output channel: wraps around as 16 bits, which are all
  Vector odd = Numbers32(0);
  for (size_t j = 0; j < count; ++j, pairs += stride) {
    PrefetchRows(pairs + kBytesAhead, 0, 1, kVectorBytes);
    const Vector codes = Load(pairs);
    const Vector first = table.Of(codes);
    const Vector second = table.Of(ShiftRight<8>(codes));
    even = Add16(even, _mm512_mullo_epi16(first, Numbers(factors[2 * j])));
    odd = Add16(odd, _mm512_mullo_epi16(second, Numbers(factors[2 * j + 1])));
  }
  alignas(kVectorBytes) uint16_t sums[kBytePairChannels];
  Store(sums, Add16(even, odd));
  for (size_t i = 0; i < kBytePairChannels; ++i) digests[i] += uint32_t{sums[i]} << 16;
}

#else

uint32_t DigestBytes(const uint8_t* codes, size_t count, const ByteWeights& weights,
                     const int16_t* factors) {
  return Below().digest_bytes(codes, count, weights, factors);
}

void DigestBytePairs(const uint8_t* pairs, size_t stride, size_t count, const ByteWeights& weights,
                     const int16_t* factors, uint32_t* digests) {
  Below().digest_byte_pairs(pairs, stride, count, weights, factors, digests);
}

#endif

}  // namespace prepack::PREPACK_LEVEL
