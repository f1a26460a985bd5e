#ifndef PREPACK_VERIFY_GEMM_CHECK_H_
#define PREPACK_VERIFY_GEMM_CHECK_H_

#include <map>
#include <string>

#include "base/isa.h"
#include "base/progress.h"
#include "base/result.h"
#include "gemm/engine.h"
#include "verify/packed_folder.h"
#include "verify/report.h"
#include "verify/second_decoder.h"

namespace prepack {

// Rows of activations per module: enough for the figures to be stable to about 0.1 dB.
inline constexpr uint64_t kGemmRows = 16;

// Level 3: does a GEMM on the packed weights compute what the source says? For every module the
// engine multiplies seeded Gaussian activations, rounded to bf16, with the weights unpacked from
// the folder. Both references are f64, from the source, decoded by the second path:
//   kernel       the same rounded activations, scales and weights as the kernel: what remains is
//   the
//                kernel's own rounding, so a wrong nibble shows whatever the input
//   end to end   x · Wᵀ with nothing rounded: what a user gets
// A module fails when a figure is below its bar. Sets the figures in `figures` (by name).
Result<LevelResult> CheckGemm(const PackedFolder& folder, const SecondDecoder& source,
                              GemmEngine& engine, double min_kernel_db, double min_end_to_end_db,
                              Isa isa, unsigned threads, Progress& progress,
                              std::map<std::string, ModuleVerification>& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_GEMM_CHECK_H_
