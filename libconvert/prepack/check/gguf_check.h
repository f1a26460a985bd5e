#pragma once

// What `prepack check` asks of a GGUF model, beside what opening it proves.

#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/gguf/model.h"

namespace prepack {

// Tensors against metadata: layers, the sizes that all architectures have, the vocabulary.
void CheckGgufMetadata(const gguf::Model& model, std::vector<Finding>& findings);

// Bytes that a page has: zeros of this length in quantized tensors are reported.
inline constexpr uint64_t kEmptyBytes = 4096;
// A scale of a block against the median of its tensor, in powers of two.
inline constexpr uint32_t kScaleDoublings = 12;

// Reads all tensors: NaN and infinity, in floats and in the scales of blocks, blocks that were
// never written, and scales that a flipped bit has made large. Errors are those of reading.
Status CheckGgufValues(const gguf::Model& model, unsigned threads, Progress& progress,
                       std::vector<Finding>& findings);

}  // namespace prepack
