// In place of the loader, where oneDNN is a static library: all that calls it is in the program.

#include "prepack/gemm/engine.h"
#include "prepack/gemm/onednn/descriptor.h"
#include "prepack/gemm/onednn/engine.h"

namespace prepack {

Result<std::unique_ptr<GemmEngine>> MakeOneDnnEngine() {
  Result<std::unique_ptr<GemmEngine>> engine = Unavailable("oneDNN", "no engine was made");
  PREPACK_ONEDNN_ENGINE_ENTRY(engine);
  return engine;
}

Result<OneDnnAnswer> AskOneDnn(const PackRequest& request) {
  Result<OneDnnAnswer> answer = Unavailable("oneDNN", "it gave no answer");
  PREPACK_ONEDNN_DESCRIPTOR_ENTRY(request, answer);
  return answer;
}

}  // namespace prepack
