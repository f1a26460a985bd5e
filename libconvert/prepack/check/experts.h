#ifndef PREPACK_CHECK_EXPERTS_H_
#define PREPACK_CHECK_EXPERTS_H_

// The experts of each layer: are they all there, with the same modules each, and quantized alike?
// Two ways to store them:
//
//     model.layers.3.mlp.experts.7.up_proj.weight    one set of tensors per expert
//     model.layers.3.mlp.experts.gate_up_proj        one tensor, whose first dimension counts them

#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"

namespace prepack {

// Appends to `findings`.
void CheckExperts(const Checkpoint& checkpoint, const QuantizedModel& model,
                  std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_EXPERTS_H_
