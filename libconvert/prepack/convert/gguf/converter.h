#pragma once

// llama.cpp's own converter, run by Python on tracers in place of tensors (trace.py). It was
// written for the converter of b11434; another one whose interface has moved is refused with what
// was missed.

#include <filesystem>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json_child.h"
#include "prepack/convert/gguf/options.h"
#include "prepack/convert/gguf/sources.h"

namespace prepack::gguf {

struct ConverterFiles {
  std::filesystem::path plan;      // JSON: the tensors by name
  std::filesystem::path metadata;  // a GGUF file without tensors
  std::filesystem::path values;    // the bytes of tensors that the converter has computed
};

struct ConverterAnswer {
  ConverterFiles files;
  std::string converter_class;
  bool has_tokenizer = false;
};

// `scratch` is an empty folder. Where the converter computes with weights that are quantized, it
// is asked a second time, with these as floats. kUnavailable when it cannot run, kUnsupported when
// it cannot convert the model; the error is in its words.
Result<ConverterAnswer> AskConverter(const Checkpoint& checkpoint, const Sources& sources,
                                     const PlanOptions& options,
                                     const std::filesystem::path& scratch);

}  // namespace prepack::gguf
