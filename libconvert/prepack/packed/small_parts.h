#pragma once

// The parts that a packed module has only once and that are not weights: bias, input order, static
// scale and zero point of activations, what a checkpoint says beside its weights. convert writes
// them, and verify compares them with the source.

#include <cstdint>
#include <optional>
#include <vector>

#include "prepack/base/memory.h"
#include "prepack/container/checkpoint.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// N elements of a tensor: `first`, first + step, …; `bytes` in all.
struct BiasPlace {
  const StoredTensor* tensor = nullptr;
  uint64_t first = 0;
  uint64_t step = 1;
  uint64_t bytes = 0;
};

// The bias of a module of the checkpoint; none: it has no bias. That it has N elements is for
// CheckBiases to say.
std::optional<BiasPlace> FindBias(const Checkpoint& checkpoint, const QuantizedLinear& linear);
// What together is the bias of the module, one for each of its members; empty: it has none.
std::vector<BiasPlace> FindBiases(const Checkpoint& checkpoint, const QuantizedLinear& linear);
// Has every member that has a bias one float of it per output channel?
Status CheckBiases(const Checkpoint& checkpoint, const QuantizedLinear& linear);

// The tensors of the checkpoint that a packed module replaces, including its bias if that is a
// part.
std::vector<const StoredTensor*> ReplacedTensors(const Checkpoint& checkpoint,
                                                 const QuantizedLinear& linear, bool with_bias);

bool IsSmallPart(PartRole role);

// The bytes of the part of a module that the layout takes. A bias is converted to the part's dtype,
// rounded to nearest even; that a finite one becomes infinite is kUnsupported.
Status SmallPartBytes(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                      const Layout& layout, const PartSpec& part, PageBuffer& out);

// The bias of a module in a layout whose weight holds it, [N]; none where it has no bias. `parts`
// are those of the module.
Status ReadHeldBias(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                    const Layout& layout, const std::vector<PartSpec>& parts,
                    std::vector<float>& bias);

}  // namespace prepack
