#pragma once

// The layers and parts that a language model consists of.

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/model/module_name.h"

namespace prepack {

// The list that `num_hidden_layers` counts: the one with the name that decoders have, or the only
// one that there is; empty when neither tells. A view into the checkpoint.
std::string_view FindDecoderList(const Checkpoint& checkpoint);

// What a language model cannot do without, whatever the index and the shards say: config.json, an
// embedding, an output head unless config.json ties it to the embedding, norms in its layers and
// behind them, and a way out of every MLP. A checkpoint without one of these was cut short, and
// loaders fill in random numbers or stop.
//
// From names, shapes and config.json alone. Architectures differ, so each rule holds only where
// config.json or the rest of the model calls for the part:
//   embedding    `architectures` names a language model. Known names of embeddings count, and so
//                does any matrix outside of the layers that has a row per token (vocab_size)
//   head         `tie_word_embeddings` is false. Known names count, and a second matrix with a row
//                per token
//   norms        some layer has a norm: then a norm comes behind the layers, too, except in models
//                with norms behind each block (do_layer_norm_before). No layer has one: only OLMo's
//                first model is built so. Both norms of a layer where the family (`model_type`) is
//                known to have both
//   projections  a decoder's MLP whose inputs are there (up, gate, fc1, …), but not its output

// One kMalformed status for each part that is missing. Those of other models than language models,
// and of files without a folder, are not looked for. `modules` are all of the checkpoint's.
std::vector<Status> FindMissingParts(const Checkpoint& checkpoint,
                                     std::span<const ModuleTensors> modules,
                                     const QuantizedModel& model);

// Runtimes fuse layers that read the same input into one: q, k and v; gate and up. They must then
// be quantized in one way (mirrors vLLM 0.32, layers/quantization/utils/quant_utils.py:
// is_layer_skipped, and its packed_modules_mapping).

// Layers of one parent that runtimes run as one.
struct SiblingSet {
  std::string_view fused;                 // what runtimes call the whole; empty: no layer of theirs
  std::array<std::string_view, 3> names;  // in the order of their output channels; "" is none

  std::span<const std::string_view> Names() const {
    return std::span(names).first(names.back().empty() ? 2 : 3);
  }
};

std::span<const SiblingSet> SiblingSets();

// Adds a finding ("module-siblings-differ") for every set of siblings of which some are quantized
// and some are not, or whose schemes differ; it lists them. `modules` are all of the checkpoint's.
// A module that is quantized but could not be read says nothing here: its error does.
void ReportFusedSiblings(std::span<const ModuleTensors> modules, QuantizedModel& model);

}  // namespace prepack
