#pragma once

// `prepack inspect model.gguf`: metadata, types and tensors.

#include <string>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/gguf/model.h"

namespace prepack::cli {

// `tensors`: a line for each of them, too.
Result<std::string> GgufText(const gguf::Model& model, bool tensors);
Result<Json> GgufJson(const gguf::Model& model);

}  // namespace prepack::cli
