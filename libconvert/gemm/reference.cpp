#include "gemm/reference.h"

#include <cmath>
#include <limits>

#include "gemm/reference_avx2.h"
#include "gemm/reference_product.h"

namespace prepack {

void ReferenceGemm(Isa isa, uint64_t m, uint64_t n, uint64_t k, std::span<const double> x,
                   std::span<const double> w, std::span<double> y) {
  switch (isa) {
    case Isa::kScalar:
      return Product(m, n, k, x.data(), w.data(), y.data());
    case Isa::kAvx2:
      return ReferenceProductAvx2(m, n, k, x.data(), w.data(), y.data());
  }
}

void SqnrAccumulator::Add(std::span<const double> signal, std::span<const float> value) {
  for (size_t i = 0; i < signal.size(); ++i) {
    const double error = signal[i] - static_cast<double>(value[i]);
    signal_ += signal[i] * signal[i];
    noise_ += error * error;
  }
}

void SqnrAccumulator::Merge(const SqnrAccumulator& other) {
  signal_ += other.signal_;
  noise_ += other.noise_;
}

double SqnrAccumulator::Decibel() const {
  if (!std::isfinite(signal_) || !std::isfinite(noise_) || signal_ == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return 10 * std::log10(signal_ / noise_);  // no noise: infinity
}

}  // namespace prepack
