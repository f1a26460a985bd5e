// Stands in for onednn_engine.cpp in a build without oneDNN.

#include "gemm/engine.h"

namespace prepack {

Result<std::unique_ptr<GemmEngine>> MakeOneDnnEngine() {
  return Unavailable("oneDNN", "prepack was built without it, so only the reference engine is here")
      .Hint("Run tools/setup and build again, or choose --engine reference");
}

}  // namespace prepack
