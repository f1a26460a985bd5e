#ifndef PREPACK_KERNELS_STRIP_CODES_BODY_H_
#define PREPACK_KERNELS_STRIP_CODES_BODY_H_

// The bodies of strip_codes.h: a register holds output channels side by side, as the strip does.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

float ScaledNibble(const NibbleScales& scales, size_t i, uint32_t code) {
  const float product =
      (static_cast<float>(code ^ scales.flip) - scales.zeros[i]) * scales.scales[i];
  return ToBF16(product, scales.to_bf16 ? Bf16Rounding::kByInstruction : Bf16Rounding::kNone);
}

}  // namespace

void ScaleNibbles(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                  float* w) {
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < kStripChannels; ++i) {
      const uint32_t code = codes[j * stride + i / 2] >> (i % 2 * 4) & 15U;
      w[j * kStripChannels + i] = ScaledNibble(scales, i, code);
    }
  }
}

void ScaleNibbleLines(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                      float* w) {
  for (size_t i = 0; i < kStripChannels; ++i) {
    for (size_t j = 0; j < 8 * count; ++j) {
      const uint32_t code = codes[i * stride + j / 2] >> (j % 2 * 4) & 15U;
      w[j * kStripChannels + i] = ScaledNibble(scales, i, code);
    }
  }
}

void WidenQuads(const int8_t* quads, size_t stride, size_t count, int16_t* w) {
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < kStripChannels; ++i) {
      for (size_t k = 0; k < 4; ++k) {
        w[((j * 2 + k / 2) * kStripChannels + i) * 2 + k % 2] =
            static_cast<int16_t>(static_cast<int>(quads[j * stride + 4 * i + k]));
      }
    }
  }
}

#else

namespace {

// The parameters of kVectorFloats output channels.
struct NibbleRegisters {
  Floats zero;
  Floats scale;
  Vector flip;
};

[[gnu::always_inline]] inline NibbleRegisters LoadScales(const NibbleScales& scales, size_t i) {
  return {PREPACK_MM(loadu_ps)(scales.zeros + i), PREPACK_MM(loadu_ps)(scales.scales + i),
          Numbers32(scales.flip)};
}

// kRound: 0 not, 1 numbers that need no care, 2 any.
template <int kRound>
[[gnu::always_inline]] inline void StoreScaled(Vector nibbles, const NibbleRegisters& scales,
                                               float* w) {
  const Floats codes = PREPACK_MM(cvtepi32_ps)(Xor(nibbles, scales.flip));
  const Floats product = PREPACK_MM(mul_ps)(PREPACK_MM(sub_ps)(codes, scales.zero), scales.scale);
  if constexpr (kRound == 0) {
    PREPACK_MM(storeu_ps)(w, product);
  } else {
    const Vector bits = BitsOf(product);
    Store(w, kRound == 1 ? And(RoundedUp(bits), Numbers32(0xFFFF0000))
                         : ToBF16<Bf16Rounding::kByInstruction>(bits));
  }
}

// The nibbles of `words`, one or two of them, of which each is that of eight channels.
[[gnu::always_inline]] inline Vector SplitWords(const uint8_t* words) {
#ifdef PREPACK_AVX512
  const __m512i both =
      _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(words)));
  const __m512i spread = _mm512_permutexvar_epi32(
      _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0), both);
  const __m512i shifts = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
  return And(_mm512_srlv_epi32(spread, shifts), Numbers32(15));
#else
  int32_t word = 0;
  __builtin_memcpy(&word, words, sizeof word);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  return And(_mm256_srlv_epi32(_mm256_set1_epi32(word), shifts), Numbers32(15));
#endif
}

template <int kRound>
void ScaleAll(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
              float* w) {
  for (size_t i = 0; i < kStripChannels; i += kVectorFloats) {
    const NibbleRegisters of_strip = LoadScales(scales, i);
    for (size_t j = 0; j < count; ++j) {
      StoreScaled<kRound>(SplitWords(codes + j * stride + i / 2), of_strip,
                          w + j * kStripChannels + i);
    }
  }
}

// Four bytes of each of kVectorFloats output channels.
[[gnu::always_inline]] inline Vector LoadWords(const uint8_t* codes, size_t stride) {
  alignas(64) int32_t words[kVectorFloats];
  for (size_t i = 0; i < kVectorFloats; ++i) {
    __builtin_memcpy(words + i, codes + i * stride, sizeof(int32_t));
  }
  return Load(words);
}

template <int kRound>
void ScaleAllLines(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                   float* w) {
  for (size_t i = 0; i < kStripChannels; i += kVectorFloats) {
    const NibbleRegisters of_strip = LoadScales(scales, i);
    for (size_t word = 0; word < count; ++word) {
      Vector left = LoadWords(codes + i * stride + 4 * word, stride);
      float* to = w + 8 * word * kStripChannels + i;
      for (size_t j = 0; j < 8; ++j, to += kStripChannels) {
        StoreScaled<kRound>(And(left, Numbers32(15)), of_strip, to);
        left = PREPACK_MM(srli_epi32)(left, 4);
      }
    }
  }
}

}  // namespace

void ScaleNibbles(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                  float* w) {
  if (!scales.to_bf16) return ScaleAll<0>(codes, stride, count, scales, w);
  if (AreOrdinary(scales)) return ScaleAll<1>(codes, stride, count, scales, w);
  ScaleAll<2>(codes, stride, count, scales, w);
}

void ScaleNibbleLines(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                      float* w) {
  if (!scales.to_bf16) return ScaleAllLines<0>(codes, stride, count, scales, w);
  if (AreOrdinary(scales)) return ScaleAllLines<1>(codes, stride, count, scales, w);
  ScaleAllLines<2>(codes, stride, count, scales, w);
}

#ifndef PREPACK_AVX512

void WidenQuads(const int8_t* quads, size_t stride, size_t count, int16_t* w) {
  // Each byte becomes the upper one of 16 bits; shifting these down then extends the sign.
  const __m256i first = _mm256_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13,
                                         -1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13);
  const __m256i second =
      _mm256_setr_epi8(-1, 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1, 2, -1, 3, -1,
                       6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15);
  constexpr size_t kPairs = 2 * kStripChannels;
  for (size_t j = 0; j < count; ++j) {
    for (size_t half = 0; half < 2; ++half) {
      const __m256i four =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quads + j * stride + 32 * half));
      auto* to = w + 2 * j * kPairs + 16 * half;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm256_srai_epi16(_mm256_shuffle_epi8(four, first), 8));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kPairs),
                          _mm256_srai_epi16(_mm256_shuffle_epi8(four, second), 8));
    }
  }
}

#endif

#endif

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_STRIP_CODES_BODY_H_
