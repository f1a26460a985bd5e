#pragma once

// The bodies of figure_sums.h. The error of a sum is computed without a branch, as Knuth does it:
// it is exact, as Neumaier's is, so both are the same number. Four channels fill a register of
// AVX2, or two of NEON, and all sums stay in registers.

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

static_assert(kFigureChannels == sizeof(Doubles) / sizeof(double));

struct SumWithError {
  Doubles sum;
  Doubles error;

  [[gnu::always_inline]] void Load(const double* sums, const double* errors) {
    sum = LoadDoubles(sums);
    error = LoadDoubles(errors);
  }
  [[gnu::always_inline]] void Add(Doubles value) {
    const Doubles next = AddDoubles(sum, value);
    const Doubles added = SubDoubles(next, sum);
    error = AddDoubles(
        error, AddDoubles(SubDoubles(sum, SubDoubles(next, added)), SubDoubles(value, added)));
    sum = next;
  }
  [[gnu::always_inline]] void Store(double* sums, double* errors) const {
    StoreDoubles(sums, sum);
    StoreDoubles(errors, error);
  }
};

}  // namespace

void AddFigures(const double* truth, const float* judged, size_t stride, size_t rows,
                FigureLanes& lanes) {
  SumWithError signal;
  SumWithError noise;
  SumWithError value;
  SumWithError dot;
  signal.Load(lanes.signal.data(), lanes.signal_error.data());
  noise.Load(lanes.noise.data(), lanes.noise_error.data());
  value.Load(lanes.value.data(), lanes.value_error.data());
  dot.Load(lanes.dot.data(), lanes.dot_error.data());
  Doubles largest = LoadDoubles(lanes.largest.data());
  for (size_t row = 0; row < rows; ++row, truth += stride, judged += stride) {
    const Doubles right = LoadDoubles(truth);
    const Doubles found = WidenFloats(judged);
    const Doubles difference = WhereFinite(found, SubDoubles(right, found));
    signal.Add(MultiplyDoubles(right, right));
    noise.Add(MultiplyDoubles(difference, difference));
    value.Add(MultiplyDoubles(found, found));
    dot.Add(MultiplyDoubles(right, found));
    largest = Greater(Absolute(difference), largest);
  }
  signal.Store(lanes.signal.data(), lanes.signal_error.data());
  noise.Store(lanes.noise.data(), lanes.noise_error.data());
  value.Store(lanes.value.data(), lanes.value_error.data());
  dot.Store(lanes.dot.data(), lanes.dot_error.data());
  StoreDoubles(lanes.largest.data(), largest);
}

#endif

// Compilers make vectors of this loop: the lanes are as wide as two or four of their registers.
void AddDifferences(const float* a, const float* b, size_t rows, const DifferenceBounds& bounds,
                    DifferenceLanes& lanes) {
  DifferenceLanes sums = lanes;
  double* const signal = sums.signal.data();
  double* const noise = sums.noise.data();
  double* const largest = sums.largest.data();
  double* const unequal = sums.unequal.data();
  double* const beyond = sums.beyond.data();
  double* const relative = sums.relative.data();
  for (size_t row = 0; row < rows; ++row, a += kDifferenceLanes, b += kDifferenceLanes) {
    for (size_t i = 0; i < kDifferenceLanes; ++i) {
      const auto left = static_cast<double>(a[i]);
      const auto right = static_cast<double>(b[i]);
      const double distance = __builtin_fabs(left - right);
      const double size_left = __builtin_fabs(left);
      const double size_right = __builtin_fabs(right);
      const double size = size_left > size_right ? size_left : size_right;
      signal[i] += left * left;
      noise[i] += distance * distance;
      largest[i] = distance > largest[i] ? distance : largest[i];
      unequal[i] += left != right ? 1.0 : 0.0;
      beyond[i] += distance > bounds.tolerance * size ? 1.0 : 0.0;
      relative[i] += distance > bounds.relative * size ? 1.0 : 0.0;
    }
  }
  lanes = sums;
}

}  // namespace prepack::PREPACK_LEVEL
