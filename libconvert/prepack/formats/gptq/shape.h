#ifndef PREPACK_FORMATS_GPTQ_SHAPE_H_
#define PREPACK_FORMATS_GPTQ_SHAPE_H_

// The tensors of a GPTQ module and what their shapes say, checked against each other.

#include <cstdint>
#include <vector>

#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/config.h"
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

// g_idx: the group of each input channel. Rows of qweight are always in the order of the
// checkpoint; with activation order only the map from channel to group is scattered. The tensor
// decides, not desc_act: static groups and group-aware reordering leave it natural.

struct Order {
  enum class Kind : uint8_t {
    kAbsent,     // no g_idx
    kUnset,      // −1 throughout, or 0 throughout with several groups: never filled in
    kNatural,    // k / group size
    kScattered,  // anything else
  };
  Kind kind = Kind::kAbsent;
  std::vector<uint32_t> group_of;  // of kScattered: [K]
  // Of kScattered: the permutation that makes groups contiguous and keeps the order inside them.
  InputOrder k_order;
};

// kMalformed for a group that does not exist, and for groups that are not all of the group size
// (the last one may be short): no quantizer makes such.
Result<Order> ReadOrder(const Checkpoint& checkpoint, const Shape& shape);

// The k_order of a module whose order was kScattered when it was described. Anything else now is
// kMalformed.
Result<InputOrder> ReadKOrder(const Checkpoint& checkpoint, const Shape& shape);

// Adds what the user should know of it. `act_order` is what the config says.
void ReportOrder(const Order& order, const ModuleTensors& module, const Shape& shape,
                 bool act_order, FindingTally& findings);

}  // namespace prepack::gptq

#endif  // PREPACK_FORMATS_GPTQ_SHAPE_H_
