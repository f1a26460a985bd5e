#ifndef PREPACK_FORMATS_MODEL_PARTS_H_
#define PREPACK_FORMATS_MODEL_PARTS_H_

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

#include <vector>

#include "base/status.h"
#include "container/checkpoint.h"
#include "formats/format.h"

namespace prepack {

// One kMalformed status for each part that is missing. Those of other models than language models,
// and of files without a folder, are not looked for.
std::vector<Status> FindMissingParts(const Checkpoint& checkpoint, const QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_FORMATS_MODEL_PARTS_H_
