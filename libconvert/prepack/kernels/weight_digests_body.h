#pragma once

// The bodies of weight_digests.h.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

uint32_t DigestScaled(const float* steps, size_t count, float scale, Bf16Rounding rounding,
                      const uint32_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < count; ++i) {
    digest += BitsOf(ToBF16(steps[i] * scale, rounding)) * factors[i];
  }
  return digest;
}

uint32_t DigestSteps(const float* steps, size_t count, const int16_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < count; ++i) {
    digest += static_cast<uint32_t>(static_cast<int32_t>(steps[i])) *
              static_cast<uint32_t>(static_cast<int32_t>(factors[i]));
  }
  return digest;
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
         Below().digest_scaled(steps + i, count - i, scale, kRounding, factors + i);
}

}  // namespace

uint32_t DigestScaled(const float* steps, size_t count, float scale, Bf16Rounding rounding,
                      const uint32_t* factors) {
  uint32_t digest = 0;
  WithRounding<kNone, kByInstruction, kNearest, kNearestOfFinite>(
      rounding, [&]<Bf16Rounding kRounding>() {
        digest = DigestAll<kRounding>(steps, count, scale, factors);
      });
  return digest;
}

uint32_t DigestSteps(const float* steps, size_t count, const int16_t* factors) {
  Vector digest = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const Vector numbers = ToNumbers(LoadFloats(steps + i));
    digest = Add32(digest, Multiply32(numbers, WidenNumbers(factors + i)));
  }
  return static_cast<uint32_t>(Total(digest)) +
         Below().digest_steps(steps + i, count - i, factors + i);
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
