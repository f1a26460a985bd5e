#ifndef PREPACK_KERNELS_ROW_PRODUCTS_BODY_H_
#define PREPACK_KERNELS_ROW_PRODUCTS_BODY_H_

// The bodies of row_products.h. Weights stay in registers, or in the L1 cache, for all rows.

namespace prepack::PREPACK_LEVEL {
namespace {

// As RoundByInstruction rounds to bf16, which other files compile for other instruction sets.
[[gnu::always_inline]] inline float ToBF16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    bits |= 0x400000U;
  } else if (magnitude < 0x00800000U) {
    bits &= 0x80000000U;
  } else {
    bits += 0x7FFFU + (bits >> 16 & 1U);
  }
  bits &= 0xFFFF0000U;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// What vectors leave over, and all that the scalar twin does.
[[gnu::always_inline]] inline void ScaleOneByOne(const float* steps, size_t count, float scale,
                                                 bool to_bf16, float* out) {
  for (size_t i = 0; i < count; ++i) {
    const float product = steps[i] * scale;
    out[i] = to_bf16 ? ToBF16(product) : product;
  }
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

void ScaleSteps(const float* steps, size_t count, float scale, bool to_bf16, float* out) {
  ScaleOneByOne(steps, count, scale, to_bf16, out);
}

void AddRowProducts(const float* w, size_t count, const float* const* x, size_t rows,
                    double* sums) {
  constexpr size_t kBlock = kShortSum * kProductLanes;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t first = 0; first < count; first += kBlock) {
      std::array<float, kProductLanes> lanes{};
      for (size_t i = first; i < std::min(count, first + kBlock); ++i) {
        float& lane = lanes[i % kProductLanes];
        lane = std::fma(x[r][i], w[i], lane);
      }
      for (size_t i = 0; i < kProductLanes; ++i) {
        sums[r * kProductLanes + i] += static_cast<double>(lanes[i]);
      }
    }
  }
}

void ScaleNibbles(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                  bool to_bf16, float* w) {
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < kStripChannels; ++i) {
      const uint32_t code = codes[j * stride + i / 2] >> (i % 2 * 4) & 15U;
      const float product =
          (static_cast<float>(code ^ scales.flip) - scales.zeros[i]) * scales.scales[i];
      w[j * kStripChannels + i] = to_bf16 ? ToBF16(product) : product;
    }
  }
}

void WidenQuads(const int8_t* quads, size_t stride, size_t count, int16_t* w) {
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < kStripChannels; ++i) {
      for (size_t k = 0; k < 4; ++k) {
        w[((j * 2 + k / 2) * kStripChannels + i) * 2 + k % 2] = quads[j * stride + 4 * i + k];
      }
    }
  }
}

#else

namespace {

[[gnu::always_inline]] inline __m256 ToBF16(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i sign = _mm256_set1_epi32(INT32_MIN);
  const __m256i magnitude = _mm256_andnot_si256(sign, bits);
  const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
  rounded = _mm256_blendv_epi8(rounded, _mm256_and_si256(bits, sign), small);
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  return _mm256_castsi256_ps(
      _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000U))));
}

// The same for finite numbers that are zero, or not below 2^-126.
[[gnu::always_inline]] inline __m256 NormalToBF16(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  return _mm256_castsi256_ps(
      _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000U))));
}

}  // namespace

void SplitFields(const uint32_t* words, size_t count, uint32_t bits, int32_t offset, float* out) {
  const __m256i less = _mm256_set1_epi32(offset);
  if (bits == 4) {
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i mask = _mm256_set1_epi32(15);
    for (size_t i = 0; i < count; ++i, out += 8) {
      const __m256i word = _mm256_set1_epi32(static_cast<int32_t>(words[i]));
      const __m256i fields = _mm256_and_si256(_mm256_srlv_epi32(word, shifts), mask);
      _mm256_storeu_ps(out, _mm256_cvtepi32_ps(_mm256_sub_epi32(fields, less)));
    }
    return;
  }
  size_t i = 0;
  for (; bits == 8 && i + 2 <= count; i += 2, out += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(words + i));
    const __m256i fields = _mm256_sub_epi32(_mm256_cvtepu8_epi32(bytes), less);
    _mm256_storeu_ps(out, _mm256_cvtepi32_ps(fields));
  }
  if (i < count) Below().split_fields(words + i, count - i, bits, offset, out);
}

void ScaleSteps(const float* steps, size_t count, float scale, bool to_bf16, float* out) {
  const __m256 factor = _mm256_set1_ps(scale);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(steps + i), factor);
    _mm256_storeu_ps(out + i, to_bf16 ? ToBF16(product) : product);
  }
  ScaleOneByOne(steps + i, count - i, scale, to_bf16, out + i);
}

namespace {

// The f32 sums of kRows rows: one row and the rest, as in strip_products_body.h.
template <size_t kRows>
struct ShortSums {
  [[gnu::always_inline]] void Clear() {
    sum = _mm256_setzero_ps();
    rest.Clear();
  }
  [[gnu::always_inline]] void Add(const float* const* x, size_t at, __m256 w) {
    sum = _mm256_fmadd_ps(_mm256_loadu_ps(*x + at), w, sum);
    rest.Add(x + 1, at, w);
  }
  // Products of fewer than eight input channels; the other places get −0, which adds nothing.
  [[gnu::always_inline]] void AddMasked(const float* const* x, size_t at, __m256 w, __m256i mask) {
    const __m256 added = _mm256_fmadd_ps(_mm256_maskload_ps(*x + at, mask), w, sum);
    sum = _mm256_blendv_ps(sum, added, _mm256_castsi256_ps(mask));
    rest.AddMasked(x + 1, at, w, mask);
  }
  [[gnu::always_inline]] void Fold(double* sums) const {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(sum));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(sum, 1));
    _mm256_storeu_pd(sums, _mm256_add_pd(_mm256_loadu_pd(sums), low));
    _mm256_storeu_pd(sums + 4, _mm256_add_pd(_mm256_loadu_pd(sums + 4), high));
    rest.Fold(sums + kProductLanes);
  }

  __m256 sum;
  ShortSums<kRows - 1> rest;
};

template <>
struct ShortSums<0> {
  void Clear() {}
  void Add(const float* const* /*x*/, size_t /*at*/, __m256 /*w*/) {}
  void AddMasked(const float* const* /*x*/, size_t /*at*/, __m256 /*w*/, __m256i /*mask*/) {}
  void Fold(double* /*sums*/) const {}
};

template <size_t kRows>
void AddRowsOf(const float* w, size_t count, const float* const* x, double* sums) {
  constexpr size_t kBlock = kShortSum * kProductLanes;
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t end = std::min(count, first + kBlock);
    ShortSums<kRows> short_sums;
    short_sums.Clear();
    size_t i = first;
    for (; i + 8 <= end; i += 8) short_sums.Add(x, i, _mm256_loadu_ps(w + i));
    if (i < end) {
      const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      const __m256i mask =
          _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(end - i)), places);
      short_sums.AddMasked(x, i, _mm256_maskload_ps(w + i, mask), mask);
    }
    short_sums.Fold(sums);
  }
}

}  // namespace

void AddRowProducts(const float* w, size_t count, const float* const* x, size_t rows,
                    double* sums) {
  for (; rows >= 8; rows -= 8, x += 8, sums += 8 * kProductLanes) AddRowsOf<8>(w, count, x, sums);
  for (; rows >= 2; rows -= 2, x += 2, sums += 2 * kProductLanes) AddRowsOf<2>(w, count, x, sums);
  if (rows == 1) AddRowsOf<1>(w, count, x, sums);
}

namespace {

// The codes of eight output channels for one input channel, as numbers.
[[gnu::always_inline]] inline __m256 EightNibbles(const uint8_t* codes, __m256i flip) {
  uint32_t word = 0;
  std::memcpy(&word, codes, sizeof word);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i nibbles =
      _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int32_t>(word)), shifts),
                       _mm256_set1_epi32(15));
  return _mm256_cvtepi32_ps(_mm256_xor_si256(nibbles, flip));
}

// kRound: 0 not, 1 numbers that need no care, 2 any.
template <int kRound>
[[gnu::always_inline]] inline void ScaleEight(const uint8_t* codes, size_t stride, size_t count,
                                              const float* zeros, const float* scales,
                                              uint32_t flip_bits, float* w) {
  const __m256i flip = _mm256_set1_epi32(static_cast<int32_t>(flip_bits));
  const __m256 zero = _mm256_loadu_ps(zeros);
  const __m256 scale = _mm256_loadu_ps(scales);
  for (size_t j = 0; j < count; ++j) {
    __m256 value =
        _mm256_mul_ps(_mm256_sub_ps(EightNibbles(codes + j * stride, flip), zero), scale);
    if constexpr (kRound == 1) value = NormalToBF16(value);
    if constexpr (kRound == 2) value = ToBF16(value);
    _mm256_storeu_ps(w + j * kStripChannels, value);
  }
}

// Whether a whole number times any of these is zero or a normal number far from the ends.
inline bool AreOrdinary(const NibbleScales& scales) {
  bool ordinary = true;
  for (size_t i = 0; i < kStripChannels; ++i) {
    const float magnitude = __builtin_fabsf(scales.scales[i]);
    const float zero = scales.zeros[i];
    ordinary = ordinary && magnitude >= 0x1p-120F && magnitude <= 0x1p+100F && zero >= -256 &&
               zero <= 256 && zero == static_cast<float>(static_cast<int>(zero));
  }
  return ordinary;
}

}  // namespace

void ScaleNibbles(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                  bool to_bf16, float* w) {
  const bool ordinary = to_bf16 && AreOrdinary(scales);
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* from = codes + 4 * half;
    const float* zeros = scales.zeros + 8 * half;
    const float* factors = scales.scales + 8 * half;
    float* to = w + 8 * half;
    if (!to_bf16) {
      ScaleEight<0>(from, stride, count, zeros, factors, scales.flip, to);
    } else if (ordinary) {
      ScaleEight<1>(from, stride, count, zeros, factors, scales.flip, to);
    } else {
      ScaleEight<2>(from, stride, count, zeros, factors, scales.flip, to);
    }
  }
}

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

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_ROW_PRODUCTS_BODY_H_
