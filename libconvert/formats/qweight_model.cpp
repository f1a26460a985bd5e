#include "formats/qweight_model.h"

#include "formats/finding.h"

namespace prepack {

Status RequireQweights(const QuantizedModel& model, std::string_view where) {
  if (!model.modules.empty() || !model.errors.empty()) return {};
  return Malformed(where, "the config declares quantized weights, but no tensor is one")
      .Expected("tensors named MODULE.qweight")
      .Hint("The config may belong to another checkpoint, or shards are missing")
      .Id(FindingId("nothing-quantized"));
}

}  // namespace prepack
