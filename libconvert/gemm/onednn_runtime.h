#ifndef PREPACK_GEMM_ONEDNN_RUNTIME_H_
#define PREPACK_GEMM_ONEDNN_RUNTIME_H_

namespace prepack {

// Must run before the first dnnl::engine of the process. Intel's build of oneDNN reaches the CPU
// through an OpenCL driver, which it finds only if the environment names it; this names the driver
// that lies beside the oneDNN that the program was built with. A value that the user has set is
// left alone.
void PrepareOneDnnRuntime();

}  // namespace prepack

#endif  // PREPACK_GEMM_ONEDNN_RUNTIME_H_
