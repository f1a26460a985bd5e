#pragma once

// Which tensors of a Hugging Face model those of a GGUF file are, where prepack has not made it:
// llama.cpp's converter is asked what it would make of such a model.

#include "prepack/base/status.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/source.h"
#include "prepack/gguf/model.h"

namespace prepack::gguf {

// Of `options.like`, a checkpoint of any format, only names, shapes and dtypes are looked at.
// kMalformed when the file has a tensor of another shape. Tensors that only one of both has are
// left out.
Result<Manifest> AskForNames(const Model& model, const GgufSource& options);

}  // namespace prepack::gguf
