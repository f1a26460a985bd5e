#pragma once

// The tensors of a GPTQ module and what their shapes say, checked against each other.

#include <cstdint>
#include <memory>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"
#include "prepack/formats/gptq/config.h"
#include "prepack/formats/group_order.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/kernels/code_rows.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::gptq {

struct Shape {
  CodePacking packing;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t group_size = 0;  // K where there is one group
  uint64_t groups = 0;
  uint64_t zero_words = 0;                // per row of qzeros; may be more than N needs
  const StoredTensor* qweight = nullptr;  // I32 [K · bits / 32, N]
  const StoredTensor* qzeros = nullptr;   // I32 [G, zero_words]
  const StoredTensor* scales = nullptr;   // F16, BF16 or F32 [G, N]
  const StoredTensor* g_idx = nullptr;    // I32 or I64 [K], or nullptr
};

// Words of qzeros that N zero points need.
uint64_t ZeroWordsFor(const CodePacking& packing, uint64_t n);

// kMalformed when a tensor is missing or contradicts the others, and when they are not packed as
// GPTQ does; kUnsupported for what GPTQModel can write and nobody reads.
Result<Shape> CheckShape(const Checkpoint& checkpoint, const ModuleTensors& module,
                         const Settings& settings);

// Adds what the user should know of the order of input channels. `act_order` is what the config
// says.
void ReportOrder(const GroupOrder& order, const ModuleTensors& module, const Shape& shape,
                 bool act_order, FindingTally& findings);

// Describes one module that is stored in the tensors of GPTQ (drawn in formats/gptq/linear.h):
// checks that every tensor agrees with the others and with what the config says, from headers,
// g_idx and the first zero point alone. AutoRound stores the same tensors under a config of its
// own.

// A module, and what was read to describe it.
struct Module {
  std::unique_ptr<QuantizedLinear> linear;
  Shape shape;
  GroupOrder order;
};

// `module` has a tensor qweight. The result refers to the checkpoint. Sound but unsupported input
// is kUnsupported, contradictory or incomplete input is kMalformed. Whether asymmetric zero points
// follow the declared convention is asked of the whole checkpoint, see formats/gptq/zeros.h.
Result<Module> DescribeModule(const Checkpoint& checkpoint, const ModuleTensors& module,
                              const Settings& settings, FindingTally& findings);

}  // namespace prepack::gptq
