#ifndef PREPACK_GEMM_ONEDNN_RUNTIME_H_
#define PREPACK_GEMM_ONEDNN_RUNTIME_H_

namespace prepack {

// Must run before the first dnnl::engine of the process. Intel's build of oneDNN reaches the CPU
// through an OpenCL driver, which it finds only if the environment variable OCL_ICD_FILENAMES names
// it; this names the driver that lies beside the loaded oneDNN. A value that the user has set is
// left alone. Sets the environment, so call it while no other thread reads that.
void PrepareOneDnnRuntime();

}  // namespace prepack

#endif  // PREPACK_GEMM_ONEDNN_RUNTIME_H_
