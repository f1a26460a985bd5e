#pragma once

// The form in which oneDNN's int8 matmul wants its weights on this machine. Only the primitive
// knows: the form depends on the CPU, on the types and attributes that it is asked with, and on the
// version of the library, and is not written down anywhere else.

#include "prepack/base/status.h"
#include "prepack/layouts/blocked_desc.h"
#include "prepack/layouts/layout.h"

namespace prepack {

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
