#ifndef PREPACK_KERNELS_FIGURE_SUMS_BODY_H_
#define PREPACK_KERNELS_FIGURE_SUMS_BODY_H_

// The bodies of figure_sums.h. The error of a sum is computed without a branch, as Knuth does it:
// it is exact, as Neumaier's is, so both are the same number. Four channels fill a register of
// AVX2, and all sums stay in registers.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

inline void AddWithError(double value, double& sum, double& error) {
  const double next = sum + value;
  const double added = next - sum;
  error += (sum - (next - added)) + (value - added);
  sum = next;
}

}  // namespace

void AddFigures(const double* truth, const float* judged, size_t stride, size_t rows,
                FigureLanes& lanes) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < kFigureChannels; ++i) {
      const double right = truth[row * stride + i];
      const auto found = static_cast<double>(judged[row * stride + i]);
      const double difference =
          std::isfinite(found) ? right - found : std::numeric_limits<double>::infinity();
      AddWithError(right * right, lanes.signal[i], lanes.signal_error[i]);
      AddWithError(difference * difference, lanes.noise[i], lanes.noise_error[i]);
      AddWithError(found * found, lanes.value[i], lanes.value_error[i]);
      AddWithError(right * found, lanes.dot[i], lanes.dot_error[i]);
      lanes.largest[i] = std::max(lanes.largest[i], std::abs(difference));
    }
  }
}

#else

namespace {

static_assert(kFigureChannels == sizeof(__m256d) / sizeof(double));

struct SumWithError {
  __m256d sum;
  __m256d error;

  [[gnu::always_inline]] void Load(const double* sums, const double* errors) {
    sum = _mm256_loadu_pd(sums);
    error = _mm256_loadu_pd(errors);
  }
  [[gnu::always_inline]] void Add(__m256d value) {
    const __m256d next = _mm256_add_pd(sum, value);
    const __m256d added = _mm256_sub_pd(next, sum);
    error = _mm256_add_pd(error, _mm256_add_pd(_mm256_sub_pd(sum, _mm256_sub_pd(next, added)),
                                               _mm256_sub_pd(value, added)));
    sum = next;
  }
  [[gnu::always_inline]] void Store(double* sums, double* errors) const {
    _mm256_storeu_pd(sums, sum);
    _mm256_storeu_pd(errors, error);
  }
};

}  // namespace

void AddFigures(const double* truth, const float* judged, size_t stride, size_t rows,
                FigureLanes& lanes) {
  const __m256d infinity = _mm256_set1_pd(__builtin_inf());
  const __m256d sign = _mm256_set1_pd(-0.0);
  SumWithError signal;
  SumWithError noise;
  SumWithError value;
  SumWithError dot;
  signal.Load(lanes.signal.data(), lanes.signal_error.data());
  noise.Load(lanes.noise.data(), lanes.noise_error.data());
  value.Load(lanes.value.data(), lanes.value_error.data());
  dot.Load(lanes.dot.data(), lanes.dot_error.data());
  __m256d largest = _mm256_loadu_pd(lanes.largest.data());
  for (size_t row = 0; row < rows; ++row, truth += stride, judged += stride) {
    const __m256d right = _mm256_loadu_pd(truth);
    const __m256d found = _mm256_cvtps_pd(_mm_loadu_ps(judged));
    const __m256d finite = _mm256_cmp_pd(_mm256_andnot_pd(sign, found), infinity, _CMP_LT_OQ);
    const __m256d difference = _mm256_blendv_pd(infinity, _mm256_sub_pd(right, found), finite);
    signal.Add(_mm256_mul_pd(right, right));
    noise.Add(_mm256_mul_pd(difference, difference));
    value.Add(_mm256_mul_pd(found, found));
    dot.Add(_mm256_mul_pd(right, found));
    // The second operand is what comes out where the first is NaN.
    largest = _mm256_max_pd(_mm256_andnot_pd(sign, difference), largest);
  }
  signal.Store(lanes.signal.data(), lanes.signal_error.data());
  noise.Store(lanes.noise.data(), lanes.noise_error.data());
  value.Store(lanes.value.data(), lanes.value_error.data());
  dot.Store(lanes.dot.data(), lanes.dot_error.data());
  _mm256_storeu_pd(lanes.largest.data(), largest);
}

#endif

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_FIGURE_SUMS_BODY_H_
