#ifndef PREPACK_VERIFY_GEMM_CHECK_H_
#define PREPACK_VERIFY_GEMM_CHECK_H_

#include "base/progress.h"
#include "base/result.h"
#include "verify/module_products.h"
#include "verify/module_states.h"
#include "verify/packed_folder.h"
#include "verify/report.h"
#include "verify/second_decoder.h"
#include "verify/sqnr_bars.h"

namespace prepack {

struct GemmCheck {
  ProductOptions products;
  bool judge_gemm = true;
  bool judge_quality = false;            // needs products.baseline
  const ModuleSample* sample = nullptr;  // null: every module
};

struct GemmLevels {
  LevelResult gemm;
  LevelResult quality;
};

// Levels 3 and 4 of the modules in the sample, in one pass.
//
// GEMM: does a product of the packed weights give what the source says? Every module is multiplied
// with the activations of gemm_inputs.h by the implementations of module_products.h. Both
// references are f64, from the source, decoded by the second path:
//   kernel       activations, scales and weights as the kernel quantizes and rounds them: what
//                remains is the kernel's own rounding, so wrong bytes show whatever the input
//   end to end   x · Wᵀ with nothing rounded: what a user gets
// The kernel figure, and the one of the worst output channel, must reach the bar on all
// activations, and so must the agreement of the two implementations; the end-to-end figure on
// Gaussian ones.
//
// Quality: how far are the weights, and the outputs, from the unquantized model? A module that
// seems to have nothing to do with it, or is far below its peers, gets a note.
//
// Sets figures and states of the modules in `figures` (by name).
Result<GemmLevels> CheckGemm(const PackedFolder& folder, const SecondDecoder& source,
                             const GemmCheck& check, const SqnrBars& bars, Progress& progress,
                             ModuleFigures& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_GEMM_CHECK_H_
