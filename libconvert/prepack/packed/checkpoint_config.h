#pragma once

// The quantization_config of an output that is a checkpoint, in the words of its format, as the
// loaders of the format want it: compressed-tensors 0.19, GPTQModel 7.7, AutoAWQ 0.2.9, auto-round
// 0.16, transformers 5.23, ModelOpt 0.47 and vLLM 0.32.

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/module_kinds.h"

namespace prepack {

// Is the target a format of checkpoints?
bool IsCheckpointTarget(std::string_view target);

// What a config says of tensors that are not those of quantized modules.
struct PlainTensors {
  // The modules with a plain matrix, ascending: those that pass through, but for embeddings, those
  // that were dequantized, and the head.
  std::vector<std::string> modules;
  // Where the scale lies by which keys are cached: "self_attn.k_scale", "k_proj.k_scale"; or empty.
  std::string_view cache_scale = {};
};
PlainTensors FindPlainTensors(const ManifestRecords& records,
                              std::span<const PackedScheme> modules);

// What config.json says of the modules, which are ascending by name; nullopt where no module is
// quantized. `source` is the quantization config of the source.
std::optional<Json> CheckpointQuantization(std::string_view target, const Json& source,
                                           std::span<const PackedScheme> modules,
                                           const PlainTensors& plain);

// The side files of a checkpoint that its output has, too. A checkpoint does not carry those that
// loaders take for a quantization config: they would contradict its own.
std::set<std::string> CarriedFiles(const Checkpoint& checkpoint, std::string_view target);

}  // namespace prepack
