#ifndef PREPACK_VERIFY_VERIFY_H_
#define PREPACK_VERIFY_VERIFY_H_

#include <filesystem>
#include <optional>

#include "base/progress.h"
#include "base/result.h"
#include "canonical/scheme.h"
#include "verify/report.h"

namespace prepack {

// The bars of the two figures. The kernel figure is limited by the rounding of the output to bf16,
// which leaves 52 dB and more, and 50 dB where it is rounded twice; 48 keeps a margin. End to end,
// rounding Gaussian activations, scales and weights to bf16 leaves 50 dB and more; rounding
// activations to integers of 8 bits leaves 40, to FP8 31.
inline constexpr double kMinKernelSqnrDb = 48.0;
inline constexpr double kMinEndToEndSqnrDb = 40.0;
inline constexpr double kMinEndToEndInt8SqnrDb = 35.0;
inline constexpr double kMinEndToEndFp8SqnrDb = 25.0;

// The bar of a module whose kernel has such activations.
double DefaultEndToEndBar(const ActivationScheme& activations);

enum class EngineChoice : uint8_t {
  kOneDnn,     // a real kernel where it takes the module; without it the GEMM level does not run
  kReference,  // our models of the kernels for all modules, on explicit request only
};

struct VerifyOptions {
  std::filesystem::path folder;
  std::optional<std::filesystem::path> source;  // none: exactness and GEMM do not run
  EngineChoice engine = EngineChoice::kOneDnn;
  std::optional<double> min_end_to_end_sqnr_db;  // none: DefaultEndToEndBar of each module
  unsigned jobs = 0;                             // threads; 0: one per CPU
};

// Verifies a packed folder on three levels: integrity, exactness, GEMM. What is wrong with the
// folder is in the report; an error status means that it could not be verified at all (not a packed
// folder, a manifest that cannot be read, a source that cannot be read, an I/O error).
Result<VerifyReport> Verify(const VerifyOptions& options, Progress& progress);

}  // namespace prepack

#endif  // PREPACK_VERIFY_VERIFY_H_
