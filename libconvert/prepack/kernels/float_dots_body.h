#pragma once

// The body of float_dots.h.

namespace prepack::PREPACK_LEVEL {

double DotFloats(const float* a, const float* b, size_t count) {
  float lanes[kDotLanes] = {};
  size_t i = 0;
#ifdef PREPACK_SCALAR
  for (; i + kDotLanes <= count; i += kDotLanes) {
    for (size_t j = 0; j < kDotLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
#else
  constexpr size_t kVectors = kDotLanes / kVectorFloats;
  Floats sums[kVectors];
  for (Floats& sum : sums) sum = RepeatFloat(0);
  for (; i + kDotLanes <= count; i += kDotLanes) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      const size_t at = i + j * kVectorFloats;
      sums[j] = AddFloats(sums[j], MultiplyFloats(LoadFloats(a + at), LoadFloats(b + at)));
    }
  }
  for (size_t j = 0; j < kVectors; ++j) StoreFloats(lanes + j * kVectorFloats, sums[j]);
#endif
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  for (; i < count; ++i) sum += static_cast<double>(a[i] * b[i]);
  return sum;
}

}  // namespace prepack::PREPACK_LEVEL
