#include "gemm/reference.h"

#include <Eigen/Core>
#include <cmath>
#include <limits>

namespace prepack {

void ReferenceGemm(uint64_t m, uint64_t n, uint64_t k, std::span<const double> x,
                   std::span<const double> w, std::span<double> y) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto rows = static_cast<Eigen::Index>(m);
  const auto columns = static_cast<Eigen::Index>(n);
  const auto inner = static_cast<Eigen::Index>(k);
  const Eigen::Map<const Matrix> x_matrix(x.data(), rows, inner);
  const Eigen::Map<const Matrix> w_matrix(w.data(), columns, inner);
  Eigen::Map<Matrix> y_matrix(y.data(), rows, columns);
  y_matrix.noalias() = x_matrix * w_matrix.transpose();
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
