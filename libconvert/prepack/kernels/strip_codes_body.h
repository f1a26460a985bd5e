#pragma once

// The bodies of strip_codes.h: a register holds output channels side by side, as the strip does.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

float ScaledNibble(const NibbleScales& scales, size_t i, uint32_t code) {
  const float product =
      (static_cast<float>(code ^ scales.flip) - scales.zeros[i]) * scales.scales[i];
  return ToBF16(product, scales.to_bf16 ? kByInstruction : kNone);
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

template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline void StoreScaled(Vector nibbles, const NibbleRegisters& scales,
                                               float* w) {
  const Floats codes = ToFloats(Xor(nibbles, scales.flip));
  const Floats product = MultiplyFloats(SubFloats(codes, scales.zero), scales.scale);
  Store(w, ToBF16<kRounding>(BitsOf(product)));
}

template <Bf16Rounding kRounding>
void ScaleAll(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
              float* w) {
  for (size_t i = 0; i < kStripChannels; i += kVectorFloats) {
    const NibbleRegisters of_strip = LoadScales(scales, i);
    for (size_t j = 0; j < count; ++j) {
      StoreScaled<kRounding>(SplitWords(codes + j * stride + i / 2), of_strip,
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

template <Bf16Rounding kRounding>
void ScaleAllLines(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                   float* w) {
  for (size_t i = 0; i < kStripChannels; i += kVectorFloats) {
    const NibbleRegisters of_strip = LoadScales(scales, i);
    for (size_t word = 0; word < count; ++word) {
      Vector left = LoadWords(codes + i * stride + 4 * word, stride);
      float* to = w + 8 * word * kStripChannels + i;
      for (size_t j = 0; j < 8; ++j, to += kStripChannels) {
        StoreScaled<kRounding>(And(left, Numbers32(15)), of_strip, to);
        left = ShiftRight32<4>(left);
      }
    }
  }
}

}  // namespace

void ScaleNibbles(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                  float* w) {
  const Bf16Rounding rounding = scales.to_bf16 ? RoundingOf(scales) : kNone;
  WithRounding<kNone, kByInstruction, kNearestOfFinite>(rounding, [&]<Bf16Rounding kRounding>() {
    ScaleAll<kRounding>(codes, stride, count, scales, w);
  });
}

void ScaleNibbleLines(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                      float* w) {
  const Bf16Rounding rounding = scales.to_bf16 ? RoundingOf(scales) : kNone;
  WithRounding<kNone, kByInstruction, kNearestOfFinite>(rounding, [&]<Bf16Rounding kRounding>() {
    ScaleAllLines<kRounding>(codes, stride, count, scales, w);
  });
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
