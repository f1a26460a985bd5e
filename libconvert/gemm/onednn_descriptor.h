#ifndef PREPACK_GEMM_ONEDNN_DESCRIPTOR_H_
#define PREPACK_GEMM_ONEDNN_DESCRIPTOR_H_

// The form in which oneDNN's int8 matmul wants its weights on this machine. Only the primitive
// knows: the form depends on the CPU, on the types and attributes that it is asked with, and on the
// version of the library, and is not written down anywhere else.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "layouts/blocked_desc.h"
#include "layouts/layout.h"

namespace prepack {

// Rows of the activations that the primitive is asked with, as vLLM asks it. Weights are packed
// once, for any number of rows.
inline constexpr uint64_t kOneDnnProbeRows = 128;

// What gave an answer, for the manifest: the same question elsewhere may have another one.
struct OneDnnOrigin {
  std::string version;         // "3.13.2"
  std::string hash;            // of the library's source, as dnnl_version() gives it
  std::string isa;             // dnnl_get_effective_cpu_isa(), "0x7"
  std::string implementation;  // "brg_matmul:avx512_core_vnni"
  uint64_t probe_m = kOneDnnProbeRows;

  friend bool operator==(const OneDnnOrigin&, const OneDnnOrigin&) = default;

  // A portable implementation that is right but far slower than the others.
  bool IsReference() const { return implementation.starts_with("ref"); }
};

struct OneDnnAnswer {
  BlockedDesc weights_desc;
  OneDnnOrigin origin;
};

// Asks the matmul primitive with the types and attributes that vLLM's handler asks with, for a
// module that onednn/w8a8 takes. kUnavailable when the program was built without oneDNN or there is
// no such primitive here; kUnsupported when the answer is a form that cannot be stated as a
// BlockedDesc.
Result<OneDnnAnswer> AskOneDnn(const PackRequest& request);

}  // namespace prepack

#endif  // PREPACK_GEMM_ONEDNN_DESCRIPTOR_H_
