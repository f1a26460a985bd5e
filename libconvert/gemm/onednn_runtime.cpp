#include "gemm/onednn_runtime.h"

#include <cstdlib>
#include <mutex>

namespace prepack {

void PrepareOneDnnRuntime() {
#ifdef PREPACK_OPENCL_DRIVER
  static std::once_flag once;
  std::call_once(once, [] {
    // Only this thread asks for an engine now, and the value stays for the life of the process.
    setenv("OCL_ICD_FILENAMES", PREPACK_OPENCL_DRIVER, 0);  // NOLINT(concurrency-mt-unsafe)
  });
#endif
}

}  // namespace prepack
