#pragma once

// The GEMM level where the source is a packed folder and the output a checkpoint. Nothing but
// kernels reads a packed folder, so the weights of the source are those that the model of the
// kernel takes from the packed bytes; it shares no code with unpacking. Those of the output are
// decoded by the second decoder, and rounded as the kernel does.

#include <map>
#include <string>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/decoded_weights.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

class PackedSource {
 public:
  static Result<PackedSource> Open(const std::filesystem::path& folder);

  // Compares the weights of an output's module with those of the layer in the source. `output`
  // decodes the modules that are quantized. kUnsupported when no model knows its form; the other
  // errors are those of reading.
  Result<DecodedDifferences> Compare(const PackedModule& packed, const SecondDecoder* output,
                                     unsigned threads, Progress& progress) const;

 private:
  // Output channels [first, first + n) of a module, or of one expert of a stack.
  struct Place {
    std::string module;
    uint64_t expert = 0;
    uint64_t first = 0;
  };

  explicit PackedSource(PackedFolder folder);
  void AddMembers(const std::string& name, const ModuleRecord& record);

  PackedFolder folder_;
  std::map<std::string, Place> places_;  // by the name of the layer
};

}  // namespace prepack
