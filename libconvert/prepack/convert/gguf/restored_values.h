#pragma once

// Tensors of floats as the checkpoint had them, written anew.

#include <cstdint>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/convert/gguf/restored.h"
#include "prepack/gguf/model.h"
#include "prepack/io/file.h"

namespace prepack::gguf {

// Writes all of the tensor, in a dtype of floats, to `offset` of the file. Returns how many numbers
// are not those of the GGUF file: the converter's computation on them gives others, or they had to
// be rounded.
Result<uint64_t> WriteRestored(const Model& model, const Restored& restored, DType dtype,
                               File& file, uint64_t offset);

}  // namespace prepack::gguf
