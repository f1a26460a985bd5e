#ifndef PREPACK_VERIFY_DECISIONS_H_
#define PREPACK_VERIFY_DECISIONS_H_

// What whoever converted a folder decided otherwise than its source says: other activations,
// weights that were dequantized. The folder is right by itself, and its bars are those of what it
// was made to be; so what it was made to be must be seen.

#include "convert/manifest.h"
#include "formats/format.h"
#include "verify/report.h"

namespace prepack {

// Adds a note for each such decision; with `strict` a failure. The model is fused as the folder is.
void JudgeDecisions(const Manifest& manifest, const Checkpoint& source, const QuantizedModel& model,
                    bool strict, LevelResult& result);

}  // namespace prepack

#endif  // PREPACK_VERIFY_DECISIONS_H_
