#ifndef PREPACK_FORMATS_GPTQ_ORDER_H_
#define PREPACK_FORMATS_GPTQ_ORDER_H_

// g_idx: the group of each input channel. Rows of qweight are always in the order of the
// checkpoint; with activation order only the map from channel to group is scattered. The tensor
// decides, not desc_act: static groups and group-aware reordering leave it natural.

#include <cstdint>
#include <vector>

#include "canonical/kept_order.h"
#include "formats/finding_tally.h"
#include "formats/gptq_shape.h"

namespace prepack {

struct GptqOrder {
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
Result<GptqOrder> ReadGptqOrder(const Checkpoint& checkpoint, const GptqShape& shape);

// The k_order of a module whose order was kScattered when it was described. Anything else now is
// kMalformed.
Result<InputOrder> ReadKOrder(const Checkpoint& checkpoint, const GptqShape& shape);

// Adds what the user should know of it. `act_order` is what the config says.
void ReportGptqOrder(const GptqOrder& order, const ModuleTensors& module, const GptqShape& shape,
                     bool act_order, FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_GPTQ_ORDER_H_
