#ifndef PREPACK_GEMM_ONEDNN_QUERY_H_
#define PREPACK_GEMM_ONEDNN_QUERY_H_

// Part of the module with oneDNN: see onednn_module.h.

#include <dnnl.hpp>

#include "gemm/onednn_fields.h"

namespace prepack {

// All that the public queries say of a descriptor.
OneDnnFields FieldsOf(const dnnl::memory::desc& desc);

}  // namespace prepack

#endif  // PREPACK_GEMM_ONEDNN_QUERY_H_
