#ifndef PREPACK_FORMATS_QWEIGHT_MODEL_H_
#define PREPACK_FORMATS_QWEIGHT_MODEL_H_

// What the formats share whose modules keep their codes in a tensor named qweight: AWQ, GPTQ and
// AutoRound.

#include <string_view>

#include "base/result.h"
#include "formats/format.h"

namespace prepack {

// kMalformed ("nothing-quantized") for a model in which the reader found neither modules nor errors
// although the config, at `where`, declares that it is quantized.
Status RequireQweights(const QuantizedModel& model, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_QWEIGHT_MODEL_H_
