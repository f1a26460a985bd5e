#include "verify/figure_sums.h"

#include <algorithm>

namespace prepack {

double Decibel(double signal, double noise) {
  if (!std::isfinite(signal) || signal == 0 || std::isnan(noise)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return 10 * std::log10(signal / noise);
}

void FigureSums::Add(const OutputBlock& block, std::span<const double> signal,
                     std::span<const float> value) {
  for (uint64_t channel = 0; channel < block.channels; ++channel) {
    CompensatedSum channel_signal;
    CompensatedSum channel_noise;
    for (uint64_t row = 0; row < block.rows; ++row) {
      const double truth = signal[row * block.channels + channel];
      const auto judged = static_cast<double>(value[row * block.channels + channel]);
      const double error =
          std::isfinite(judged) ? truth - judged : std::numeric_limits<double>::infinity();
      channel_signal.Add(truth * truth);
      channel_noise.Add(error * error);
      value_.Add(judged * judged);
      dot_.Add(truth * judged);
      max_error_ = std::max(max_error_, std::abs(error));
    }
    signal_.Add(channel_signal);
    noise_.Add(channel_noise);
    AddChannel(block.n0 + channel, channel_signal.Value(), channel_noise.Value());
  }
}

// A channel that should give zeros, and does, is as good as any.
void FigureSums::AddChannel(uint64_t n, double signal, double noise) {
  if (signal == 0 && noise == 0) return;
  const double decibel =
      signal == 0 ? -std::numeric_limits<double>::infinity() : Decibel(signal, noise);
  if (!(decibel < worst_db_ || (decibel == worst_db_ && n < worst_channel_))) return;
  worst_db_ = decibel;
  worst_channel_ = n;
}

void FigureSums::Merge(const FigureSums& other) {
  signal_.Add(other.signal_);
  noise_.Add(other.noise_);
  value_.Add(other.value_);
  dot_.Add(other.dot_);
  max_error_ = std::max(max_error_, other.max_error_);
  if (other.worst_db_ < worst_db_) {
    worst_db_ = other.worst_db_;
    worst_channel_ = other.worst_channel_;
  }
}

Figure FigureSums::Result() const {
  const double lengths = std::sqrt(signal_.Value() * value_.Value());
  return {.sqnr_db = Decibel(signal_.Value(), noise_.Value()),
          .cosine = dot_.Value() / lengths,
          .max_abs_error = max_error_,
          .worst_channel = worst_channel_,
          .worst_channel_sqnr_db = worst_db_};
}

}  // namespace prepack
