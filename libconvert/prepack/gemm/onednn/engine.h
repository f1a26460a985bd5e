#pragma once

#include <memory>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/gemm/engine.h"
#include "prepack/gemm/onednn/descriptor.h"

namespace prepack {

// The error behind the exception that is being handled. oneDNN throws dnnl::error, and lets those
// of the SYCL runtime below it through. `hint` says what the user can do without oneDNN.
Status CurrentOneDnnFailure(std::string_view hint);

}  // namespace prepack

// The doors between the program and the module that holds all that calls oneDNN. Both are built at
// once, by one compiler, so C++ objects may pass through.

// The file lies in the folder of the program, or where it was installed.
#define PREPACK_ONEDNN_MODULE "prepack_onednn.so"
#define PREPACK_ONEDNN_ENGINE_ENTRY PrepackMakeOneDnnEngine
#define PREPACK_ONEDNN_DESCRIPTOR_ENTRY PrepackAskOneDnn

extern "C" {
// Never unloaded: oneDNN's runtime keeps threads and objects until the process ends.
__attribute__((visibility("default"))) void PREPACK_ONEDNN_ENGINE_ENTRY(
    prepack::Result<std::unique_ptr<prepack::GemmEngine>>& engine);
__attribute__((visibility("default"))) void PREPACK_ONEDNN_DESCRIPTOR_ENTRY(
    const prepack::PackRequest& request, prepack::Result<prepack::OneDnnAnswer>& answer);
}
