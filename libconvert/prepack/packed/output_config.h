#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/json.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/module_kinds.h"

namespace prepack {

// The quantization config of a folder that kernels read. What consumers need at first sight stands
// there (target, the layout and scheme of most modules, the exceptions, and what stayed unpacked);
// the manifest says all of it. The original stands under `source`. `modules` are ascending by name.
Json OutputQuantization(const Manifest& manifest, std::span<const PackedScheme> modules);

// config.json of the output: the source's text (see Checkpoint::config_text), in which the
// declarations of its quantization are replaced by that of the output: of a folder that kernels
// read the one above, of a checkpoint that of its format (checkpoint_config.h). All other values
// keep the text that they had, but for the dtype of a model that becomes bf16. The tensors that
// pass through are those of `records`.
std::string OutputConfigText(const std::string& source_text, const Manifest& manifest,
                             const ManifestRecords& records, std::span<const PackedScheme> modules);

// Is the key of a config one that says in which dtype the model runs?
bool IsDTypeKey(std::string_view key);
// Is the output a checkpoint that is not quantized, whose config therefore says bf16?
bool StoresBf16(const Manifest& manifest);

// The schemes of a manifest's modules. The manifest must live longer.
std::vector<PackedScheme> PackedSchemes(const Manifest& manifest);

}  // namespace prepack
