#ifndef PREPACK_VERIFY_VERIFY_H_
#define PREPACK_VERIFY_VERIFY_H_

#include <filesystem>
#include <optional>

#include "base/progress.h"
#include "base/result.h"
#include "verify/report.h"

namespace prepack {

// The bars of the two figures for 16-bit activations. The kernel figure is limited by the rounding
// of the output to bf16, which leaves 52 dB and more; 48 keeps a margin. Rounding Gaussian
// activations, scales and weights to bf16 leaves 50 dB and more end to end.
inline constexpr double kMinKernelSqnrDb = 48.0;
inline constexpr double kMinEndToEndSqnrDb = 40.0;

enum class EngineChoice : uint8_t {
  kOneDnn,     // a real kernel; without it the GEMM level does not run
  kReference,  // our own portable arithmetic, on explicit request only
};

struct VerifyOptions {
  std::filesystem::path folder;
  std::optional<std::filesystem::path> source;  // none: exactness and GEMM do not run
  EngineChoice engine = EngineChoice::kOneDnn;
  double min_end_to_end_sqnr_db = kMinEndToEndSqnrDb;
  unsigned jobs = 0;  // threads; 0: one per CPU
};

// Verifies a packed folder on three levels: integrity, exactness, GEMM. What is wrong with the
// folder is in the report; an error status means that it could not be verified at all (not a packed
// folder, a manifest that cannot be read, a source that cannot be read, an I/O error).
Result<VerifyReport> Verify(const VerifyOptions& options, Progress& progress);

}  // namespace prepack

#endif  // PREPACK_VERIFY_VERIFY_H_
