#ifndef PREPACK_VERIFY_WEIGHT_SIZES_H_
#define PREPACK_VERIFY_WEIGHT_SIZES_H_

#include "base/status.h"
#include "formats/format.h"
#include "verify/report.h"

namespace prepack {

// Exactness and the GEMM level compare what is packed with what the quantization config says of the
// source, so a config that both misread, or that is wrong itself, passes both. The size of the
// weights does not depend on it: notes modules whose weights are far too large or small for any
// working model (check/model_judgement.h), by a few output channels of each. Errors are those of
// the readers.
Status NoteWeightSizes(const QuantizedModel& model, LevelResult& result);

}  // namespace prepack

#endif  // PREPACK_VERIFY_WEIGHT_SIZES_H_
