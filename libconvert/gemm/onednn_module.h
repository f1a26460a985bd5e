#ifndef PREPACK_GEMM_ONEDNN_MODULE_H_
#define PREPACK_GEMM_ONEDNN_MODULE_H_

// The door between the program and the module that holds the oneDNN engine. Both are built at once,
// by one compiler, so C++ objects may pass through it.

#include <memory>

#include "gemm/engine.h"

// The file lies in the folder of the program.
#define PREPACK_ONEDNN_MODULE "prepack_onednn.so"
#define PREPACK_ONEDNN_ENTRY PrepackMakeOneDnnEngine

extern "C" {
// Never unloaded: oneDNN's runtime keeps threads and objects until the process ends.
__attribute__((visibility("default"))) void PREPACK_ONEDNN_ENTRY(
    prepack::Result<std::unique_ptr<prepack::GemmEngine>>& engine);
}

#endif  // PREPACK_GEMM_ONEDNN_MODULE_H_
