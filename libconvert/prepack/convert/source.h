#pragma once

// Whatever a conversion can begin with.

#include <filesystem>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"

namespace prepack {

// What is needed to read a GGUF file; nothing of it is for other sources.
struct GgufSource {
  std::filesystem::path like = {};       // a folder that lends config.json and the tokenizer
  std::filesystem::path llama_cpp = {};  // for files that prepack has not made; needs `like`
  std::filesystem::path python = {};     // runs its converter
  // Weights that have no codes of the canonical layout (K-quants, minima that are no zero points)
  // become bf16; else they are refused.
  bool dequantize = false;
  // For looking at the file and not for converting it: tensors may keep the names of the file,
  // embeddings are modules, and nothing is refused.
  bool look = false;
  // The same, and minima count as they are stored.
  bool compare = false;
};

// A checkpoint, a packed folder, or a GGUF file. kUsage for options that the source has no use for.
Result<Checkpoint> OpenSource(const std::filesystem::path& path, const GgufSource& options = {});

}  // namespace prepack
