#ifndef PREPACK_VERIFY_SQNR_BARS_H_
#define PREPACK_VERIFY_SQNR_BARS_H_

// What a product must reach.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "canonical/scheme.h"
#include "verify/verify.h"

namespace prepack {

// The kernel figure, and the agreement of two implementations, are limited by the rounding of the
// output. To bf16 it leaves 52 dB and more, and 50 dB where it is rounded twice; 48 keeps a margin,
// and a kernel that truncates (46 dB) stays below. To f16 it leaves 73 dB. With f32 output what is
// left is the order of f32 sums: 140 dB for a few hundred input channels, 104 for tens of
// thousands.
inline constexpr double kMinKernelBF16Db = 48.0;
inline constexpr double kMinKernelF16Db = 65.0;
inline constexpr double kMinKernelF32Db = 95.0;
// What a kernel reaches that truncates to bf16 instead of rounding.
inline constexpr double kTruncatingKernelDb = 46.0;

// One channel of a kernel that rounds once is never worse than that: no bf16 number is further than
// 48.2 dB from what it was rounded from. Where the consumer rounds again, a channel may fall lower,
// and few rows tell little of it.
inline constexpr double kRoundedTwiceDb = 3.0;

// End to end, rounding Gaussian activations, scales and weights to bf16 leaves 50 dB and more;
// rounding activations to integers of 8 bits leaves 40, to FP8 31.
inline constexpr double kMinEndToEndDb = 40.0;
inline constexpr double kMinEndToEndInt8Db = 35.0;
inline constexpr double kMinEndToEndFp8Db = 28.0;

double KernelBar(DType output);
// On Gaussian activations.
double DefaultEndToEndBar(const ActivationScheme& activations);

// The --min-sqnr options together: the last one that speaks of a module decides.
class SqnrBars {
 public:
  // For the modules of these names. kUsage when a pattern is no regular expression, or is found in
  // none of them.
  static Result<SqnrBars> Make(std::span<const SqnrBar> bars, std::span<const std::string> modules);

  // nullopt when no option speaks of the module.
  std::optional<double> Of(const std::string& module) const;

 private:
  std::map<std::string, double> decibel_;  // by module
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_SQNR_BARS_H_
