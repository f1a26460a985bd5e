#ifndef PREPACK_FORMATS_AUTO_ROUND_H_
#define PREPACK_FORMATS_AUTO_ROUND_H_

// AutoRound checkpoints, whose method vLLM calls INC (mirrors auto-round 0.15,
// auto_round/export/export_to_autoround/export.py).
//
// A dialect of configuration over the tensors of GPTQ (gptq_linear.h) or AWQ (awq.h):
// `packing_format` says which of them, and how zero points are stored (auto_round_packing.h). Read
// are integer weights of 2, 3, 4 and 8 bits, with bits, groups and symmetry by layer. Scales may be
// negative: symmetric AutoRound uses the full range of codes, about half of all scales are.
//
//     N = 1, K = 8, codes 0 … 7, z = 8: qweight 76543210; qzeros' fields are 7 under
//     auto_round:auto_gptq, and 8 under auto_round
//
// Exports to plain GPTQ and AWQ (`provider: auto-round`) are read as those. The tensors decide what
// is quantized and in how many bits; where the config says otherwise, it is a finding.

#include "formats/format.h"

namespace prepack {

Result<QuantizedModel> ReadAutoRound(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AUTO_ROUND_H_
