// Stands in for the module with oneDNN in a build without it.

#include "prepack/gemm/engine.h"
#include "prepack/gemm/onednn/descriptor.h"

namespace prepack {

Result<std::unique_ptr<GemmEngine>> MakeOneDnnEngine() {
  return Unavailable("oneDNN", "prepack was built without it and has only the reference engine")
      .Hint("Run tools/setup and build again, or choose --engine reference");
}

Result<OneDnnAnswer> AskOneDnn(const PackRequest& /*request*/) {
  return Unavailable("oneDNN", "prepack was built without it and cannot ask it for its form")
      .Hint("Run tools/setup and build again, or choose --onednn-form blocked or plain");
}

}  // namespace prepack
