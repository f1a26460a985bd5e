#ifndef PREPACK_VERIFY_FIGURE_SUMS_H_
#define PREPACK_VERIFY_FIGURE_SUMS_H_

// The sums behind a Figure (report.h), in f64 and compensated, so that neither the number of
// outputs nor their order shows in the figures.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "verify/report.h"

namespace prepack {

// Neumaier's summation: the rounding errors are summed apart.
class CompensatedSum {
 public:
  void Add(double value) {
    const double sum = sum_ + value;
    if (std::isfinite(sum)) {
      error_ += std::abs(sum_) >= std::abs(value) ? (sum_ - sum) + value : (value - sum) + sum_;
    }
    sum_ = sum;
  }
  void Add(const CompensatedSum& other) {
    Add(other.sum_);
    Add(other.error_);
  }
  double Value() const { return sum_ + error_; }

 private:
  double sum_ = 0;
  double error_ = 0;
};

// 10 · log10(signal / noise) dB: infinite without noise, -infinite when the noise is; NaN when the
// signal is zero or not finite, which proves nothing.
double Decibel(double signal, double noise);

// Outputs of a block of output channels, [rows, channels] row-major.
struct OutputBlock {
  uint64_t n0 = 0;  // the first channel
  uint64_t rows = 0;
  uint64_t channels = 0;
};

// Sums over blocks; every channel comes in one block.
class FigureSums {
 public:
  // `signal` is the truth, `value` what is judged. A value that is not finite where the truth is
  // counts as infinite noise.
  void Add(const OutputBlock& block, std::span<const double> signal, std::span<const float> value);
  void Merge(const FigureSums& other);
  Figure Result() const;

 private:
  void AddChannel(uint64_t n, double signal, double noise);

  CompensatedSum signal_;
  CompensatedSum noise_;
  CompensatedSum value_;  // Σ value²
  CompensatedSum dot_;
  double max_error_ = 0;
  uint64_t worst_channel_ = 0;
  double worst_db_ = std::numeric_limits<double>::infinity();
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_FIGURE_SUMS_H_
