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
  return {LoadFloats(scales.zeros + i), LoadFloats(scales.scales + i), Numbers32(scales.flip)};
}

// kRound: 0 not, 1 numbers that need no care, 2 any.
template <int kRound>
[[gnu::always_inline]] inline void StoreScaled(Vector nibbles, const NibbleRegisters& scales,
                                               float* w) {
  const Floats codes = ToFloats(Xor(nibbles, scales.flip));
  const Floats product = MultiplyFloats(SubFloats(codes, scales.zero), scales.scale);
  if constexpr (kRound == 0) {
    StoreFloats(w, product);
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
  uint32_t word = 0;
  __builtin_memcpy(&word, words, sizeof word);
  return SplitWord(word);
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
        left = ShiftRight32<4>(left);
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
  const Vector first =
      Repeat(LaneOf<255, 0, 255, 1, 255, 4, 255, 5, 255, 8, 255, 9, 255, 12, 255, 13>());
  const Vector second =
      Repeat(LaneOf<255, 2, 255, 3, 255, 6, 255, 7, 255, 10, 255, 11, 255, 14, 255, 15>());
  constexpr size_t kPairs = 2 * kStripChannels;
  for (size_t j = 0; j < count; ++j) {
    for (size_t half = 0; half < 2; ++half) {
      const Vector four = Load(quads + j * stride + 32 * half);
      auto* to = w + 2 * j * kPairs + 16 * half;
      Store(to, ShiftRightSigned16<8>(ShuffleBytes(four, first)));
      Store(to + kPairs, ShiftRightSigned16<8>(ShuffleBytes(four, second)));
    }
  }
}

#endif

#endif

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_STRIP_CODES_BODY_H_
