#ifndef PREPACK_VERIFY_GEMM_CHECK_H_
#define PREPACK_VERIFY_GEMM_CHECK_H_

#include <map>
#include <optional>
#include <string>

#include "base/isa.h"
#include "base/progress.h"
#include "base/result.h"
#include "canonical/scheme.h"
#include "gemm/engine.h"
#include "verify/packed_folder.h"
#include "verify/report.h"
#include "verify/second_decoder.h"
#include "verify/verify.h"

namespace prepack {

// The bars of the two figures. The kernel figure is limited by the rounding of the output to bf16,
// which leaves 52 dB and more, and 50 dB where it is rounded twice; 48 keeps a margin. End to end,
// rounding Gaussian activations, scales and weights to bf16 leaves 50 dB and more; rounding
// activations to integers of 8 bits leaves 40, to FP8 31.
inline constexpr double kMinKernelSqnrDb = 48.0;
inline constexpr double kMinEndToEndSqnrDb = 40.0;
inline constexpr double kMinEndToEndInt8SqnrDb = 35.0;
inline constexpr double kMinEndToEndFp8SqnrDb = 28.0;

// The bar of a module whose kernel has such activations.
double DefaultEndToEndBar(const ActivationScheme& activations);

struct GemmBars {
  double kernel_db = 0;
  std::optional<double> end_to_end_db;  // none: by the activations, see DefaultEndToEndBar
};

// Is there a module that an engine multiplies?
bool HasModuleForEngine(const Manifest& manifest);

// Level 3: does a GEMM on the packed weights compute what the source says? For every module seeded
// Gaussian activations, in the dtype of the manifest, are multiplied with the packed weights: with
// 4-bit weights and 16-bit activations by the engine, if there is one; everything else by the model
// of the consumer's kernel. Both references are f64, from the source, decoded by the second path:
//   kernel       activations, scales and weights as the kernel quantizes and rounds them: what
//                remains is the kernel's own rounding, so wrong bytes show whatever the input
//   end to end   x · Wᵀ with nothing rounded: what a user gets
// A module fails when a figure is below its bar. Sets the figures in `figures` (by name). Modules
// are multiplied side by side, one per thread.
Result<LevelResult> CheckGemm(const PackedFolder& folder, const SecondDecoder& source,
                              GemmEngine* engine, const GemmBars& bars, Isa isa, unsigned threads,
                              Progress& progress,
                              std::map<std::string, ModuleVerification>& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_GEMM_CHECK_H_
