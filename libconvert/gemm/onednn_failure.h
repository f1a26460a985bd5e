#ifndef PREPACK_GEMM_ONEDNN_FAILURE_H_
#define PREPACK_GEMM_ONEDNN_FAILURE_H_

// Part of the module with oneDNN: see onednn_module.h.

#include <string_view>

#include "base/status.h"

namespace prepack {

// The error behind the exception that is being handled. oneDNN throws dnnl::error, and lets those
// of the SYCL runtime below it through. `hint` says what the user can do without oneDNN.
Status CurrentOneDnnFailure(std::string_view hint);

}  // namespace prepack

#endif  // PREPACK_GEMM_ONEDNN_FAILURE_H_
