#ifndef PREPACK_KERNELS_WEIGHT_DIGESTS_BODY_H_
#define PREPACK_KERNELS_WEIGHT_DIGESTS_BODY_H_

// The bodies of weight_digests.h.

namespace prepack::PREPACK_LEVEL {

namespace {

// What vectors leave over, and all that the scalar twin does.
[[gnu::always_inline]] inline uint32_t DigestOneByOne(const float* steps, size_t count, float scale,
                                                      Bf16Rounding rounding,
                                                      const uint32_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < count; ++i) {
    digest += BitsOf(ToBF16(steps[i] * scale, rounding)) * factors[i];
  }
  return digest;
}

[[gnu::always_inline]] inline uint32_t DigestStepsOneByOne(const float* steps, size_t count,
                                                           const int16_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < count; ++i) {
    digest += static_cast<uint32_t>(static_cast<int32_t>(steps[i])) *
              static_cast<uint32_t>(static_cast<int32_t>(factors[i]));
  }
  return digest;
}

}  // namespace

#ifdef PREPACK_SCALAR

void SplitFields(const uint32_t* words, size_t count, uint32_t bits, int32_t offset, float* out) {
  const uint32_t mask = (1U << bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    for (uint32_t shift = 0; shift < 32; shift += bits) {
      *out++ = static_cast<float>(static_cast<int32_t>(words[i] >> shift & mask) - offset);
    }
  }
}

uint32_t DigestScaled(const float* steps, size_t count, float scale, Bf16Rounding rounding,
                      const uint32_t* factors) {
  return DigestOneByOne(steps, count, scale, rounding, factors);
}

uint32_t DigestSteps(const float* steps, size_t count, const int16_t* factors) {
  return DigestStepsOneByOne(steps, count, factors);
}

void AddStripDigests(const float* w, size_t count, const uint32_t* factors, uint32_t* digests) {
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < kStripChannels; ++i) {
      digests[i] += BitsOf(w[j * kStripChannels + i]) * factors[j];
    }
  }
}

#else

namespace {

template <Bf16Rounding kRounding>
uint32_t DigestAll(const float* steps, size_t count, float scale, const uint32_t* factors) {
  const Floats factor = RepeatFloat(scale);
  Vector digest = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const Floats product = MultiplyFloats(LoadFloats(steps + i), factor);
    const Vector bits = ToBF16<kRounding>(BitsOf(product));
    digest = Add32(digest, Multiply32(bits, Load(factors + i)));
  }
  return static_cast<uint32_t>(Total(digest)) +
         DigestOneByOne(steps + i, count - i, scale, kRounding, factors + i);
}

}  // namespace

void SplitFields(const uint32_t* words, size_t count, uint32_t bits, int32_t offset, float* out) {
  const Vector less = Numbers32(static_cast<uint32_t>(offset));
  size_t i = 0;
#ifdef PREPACK_AVX512
  const __m512i shifts = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
  const __m512i places = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  for (; bits == 4 && i + 2 <= count; i += 2, out += 16) {
    const __m512i both =
        _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(words + i)));
    const __m512i spread = _mm512_permutexvar_epi32(places, both);
    const Vector fields = And(_mm512_srlv_epi32(spread, shifts), Numbers32(15));
    _mm512_storeu_ps(out, _mm512_cvtepi32_ps(_mm512_sub_epi32(fields, less)));
  }
  for (; bits == 8 && i + 4 <= count; i += 4, out += 16) {
    const Vector fields = _mm512_cvtepu8_epi32(LoadLane(words + i));
    _mm512_storeu_ps(out, _mm512_cvtepi32_ps(_mm512_sub_epi32(fields, less)));
  }
#else
  for (; bits == 4 && i < count; ++i, out += 8) {
    StoreFloats(out, ToFloats(Sub32(SplitWord(words[i]), less)));
  }
  for (; bits == 8 && i + 2 <= count; i += 2, out += 8) {
    StoreFloats(out, ToFloats(Sub32(WidenEight(words + i), less)));
  }
#endif
  if (i < count) Below().split_fields(words + i, count - i, bits, offset, out);
}

uint32_t DigestScaled(const float* steps, size_t count, float scale, Bf16Rounding rounding,
                      const uint32_t* factors) {
  if (rounding == Bf16Rounding::kNone) {
    return DigestAll<Bf16Rounding::kNone>(steps, count, scale, factors);
  }
  if (rounding == Bf16Rounding::kNearest) {
    return DigestAll<Bf16Rounding::kNearest>(steps, count, scale, factors);
  }
  if (rounding == Bf16Rounding::kNearestOfFinite) {
    return DigestAll<Bf16Rounding::kNearestOfFinite>(steps, count, scale, factors);
  }
  return DigestAll<Bf16Rounding::kByInstruction>(steps, count, scale, factors);
}

uint32_t DigestSteps(const float* steps, size_t count, const int16_t* factors) {
  Vector digest = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const Vector numbers = ToNumbers(LoadFloats(steps + i));
    digest = Add32(digest, Multiply32(numbers, WidenNumbers(factors + i)));
  }
  return static_cast<uint32_t>(Total(digest)) +
         DigestStepsOneByOne(steps + i, count - i, factors + i);
}

void AddStripDigests(const float* w, size_t count, const uint32_t* factors, uint32_t* digests) {
  for (size_t i = 0; i < kStripChannels; i += kVectorFloats) {
    Vector even = Load(digests + i);
    Vector odd = Numbers32(0);
    size_t j = 0;
    for (; j + 2 <= count; j += 2) {
      const float* line = w + j * kStripChannels + i;
      even = Add32(even, Multiply32(Load(line), Numbers32(factors[j])));
      odd = Add32(odd, Multiply32(Load(line + kStripChannels), Numbers32(factors[j + 1])));
    }
    if (j < count) {
      even = Add32(even, Multiply32(Load(w + j * kStripChannels + i), Numbers32(factors[j])));
    }
    Store(digests + i, Add32(even, odd));
  }
}

#endif

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_WEIGHT_DIGESTS_BODY_H_
