#ifndef PREPACK_VERIFY_ENGINE_GEMM_H_
#define PREPACK_VERIFY_ENGINE_GEMM_H_

// A GEMM on a packed module by a real kernel (gemm/engine.h), panel by panel, with the codes
// unpacked from the folder.

#include <mutex>

#include "base/progress.h"
#include "base/result.h"
#include "gemm/engine.h"
#include "verify/gemm_truth.h"
#include "verify/packed_folder.h"
#include "verify/second_decoder.h"

namespace prepack {

// 4-bit weights with 16-bit activations.
bool EngineTakes(const PackRequest& request);

// Requires EngineTakes. Uses the engine under the mutex: it has threads of its own. The bias is
// left out. kMalformed and kUnsupported as in model_gemm.h.
Result<GemmSums> MultiplyByEngine(const PackedModule& packed, const SecondDecoder& source,
                                  GemmEngine& engine, std::mutex& engine_mutex, Progress& progress);

}  // namespace prepack

#endif  // PREPACK_VERIFY_ENGINE_GEMM_H_
