#ifndef PREPACK_CANONICAL_STACKED_LINEAR_H_
#define PREPACK_CANONICAL_STACKED_LINEAR_H_

// Layers that read the same input, as one layer: their output channels one after another. Runtimes
// hold q, k and v like this, and gate and up.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "canonical/quantized_linear.h"

namespace prepack {

// The members as one module of that name; they must live longer. kUnsupported when they are
// quantized in ways that do not go together: what() says how they differ, without a place. Any
// other error is one of reading the source.
//
// Members with one scale each become a module with one scale per output channel.
Result<std::unique_ptr<QuantizedLinear>> Stack(std::string module,
                                               std::vector<const QuantizedLinear*> members);

// The modules of the checkpoint that a module is: its members, or itself alone.
std::vector<const QuantizedLinear*> MembersOf(const QuantizedLinear& linear);

}  // namespace prepack

#endif  // PREPACK_CANONICAL_STACKED_LINEAR_H_
