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

#elif !defined(PREPACK_AVX512)

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

#ifdef PREPACK_AVX512

namespace {

// A register; compilers would make two halves of it.
using Doubles8 [[gnu::vector_size(64)]] = double;
using Longs8 [[gnu::vector_size(64)]] = int64_t;

[[gnu::always_inline]] inline Doubles8 WidenEight(const float* from) {
  using Floats8 [[gnu::vector_size(32)]] = float;
  Floats8 floats;
  __builtin_memcpy(&floats, from, sizeof floats);
  return __builtin_convertvector(floats, Doubles8);
}

[[gnu::always_inline]] inline Doubles8 AbsoluteOf(Doubles8 values) {
  return reinterpret_cast<Doubles8>(reinterpret_cast<Longs8>(values) & INT64_MAX);
}

[[gnu::always_inline]] inline Doubles8 OneWhere(Longs8 mask) {
  return mask ? Doubles8{} + 1 : Doubles8{};
}

struct DifferenceRegisters {
  Doubles8 signal, noise, largest, unequal, beyond, relative;
};
static_assert(sizeof(DifferenceRegisters) == sizeof(DifferenceLanes));

}  // namespace

// In 0.7 of the time that two halves take.
void AddDifferences(const float* a, const float* b, size_t rows, const DifferenceBounds& bounds,
                    DifferenceLanes& lanes) {
  DifferenceRegisters sums;
  __builtin_memcpy(&sums, &lanes, sizeof sums);
  for (size_t row = 0; row < rows; ++row, a += kDifferenceLanes, b += kDifferenceLanes) {
    const Doubles8 left = WidenEight(a);
    const Doubles8 right = WidenEight(b);
    const Doubles8 distance = AbsoluteOf(left - right);
    const Doubles8 size_left = AbsoluteOf(left);
    const Doubles8 size_right = AbsoluteOf(right);
    const Doubles8 size = size_left > size_right ? size_left : size_right;
    sums.signal += left * left;
    sums.noise += distance * distance;
    sums.largest = distance > sums.largest ? distance : sums.largest;
    sums.unequal += OneWhere(left != right);
    sums.beyond += OneWhere(distance > bounds.tolerance * size);
    sums.relative += OneWhere(distance > bounds.relative * size);
  }
  __builtin_memcpy(static_cast<void*>(&lanes), &sums, sizeof sums);
}

#else

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

#endif

}  // namespace prepack::PREPACK_LEVEL
