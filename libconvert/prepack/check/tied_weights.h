#ifndef PREPACK_CHECK_TIED_WEIGHTS_H_
#define PREPACK_CHECK_TIED_WEIGHTS_H_

#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"

namespace prepack {

// tie_word_embeddings against what is stored as head and embedding: a head that differs though it
// is tied, and two equal copies. Without `read_data` only dtype and shape are compared. Errors are
// those of reading.
Status CheckTiedWeights(const Checkpoint& checkpoint, const QuantizedModel& model, bool read_data,
                        std::vector<Finding>& findings);

// The embedding that stands for the tensor `head`, where config.json ties the two and `head` is the
// name of an output head; otherwise null.
const StoredTensor* TiedEmbedding(const Checkpoint& checkpoint, std::string_view head);

}  // namespace prepack

#endif  // PREPACK_CHECK_TIED_WEIGHTS_H_
