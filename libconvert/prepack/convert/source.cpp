#include "prepack/convert/source.h"

#include "prepack/convert/gguf/file_origin.h"
#include "prepack/gguf/model.h"

namespace prepack {

Result<Checkpoint> OpenSource(const std::filesystem::path& path, const GgufSource& options) {
  if (gguf::IsGguf(path)) return gguf::OpenGgufSource(path, options);
  if (options.like.empty()) return Checkpoint::Open(path);
  return Usage("--like", "it is for GGUF files: a folder has a config of its own");
}

}  // namespace prepack
