#ifndef PREPACK_FORMATS_AUTO_ROUND_PACKING_H_
#define PREPACK_FORMATS_AUTO_ROUND_PACKING_H_

// What AutoRound's `packing_format` says of the tensors (mirrors auto-round 0.15,
// auto_round/export/export_to_autoround/export.py and inference/backend.py):
//
//     packing_format                                     tensors    zero point stored as
//     auto_round:auto_gptq, auto_round:gptq, auto        GPTQ       z − 1
//     auto_round, auto_round:gptqmodel                   GPTQ       z
//     auto_round:auto_awq, auto_round:awq                AWQ gemm   z
//     key absent                                         GPTQ       z − 1
//     legacy `backend` with gptq, awq, neither of them   GPTQ, AWQ, GPTQ   z − 1, z, z
//
// One kind of export does not do what it says: auto_round_zeros.h.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/finding_tally.h"
#include "formats/quantization_config.h"

namespace prepack {

enum class AutoRoundPacking : uint8_t { kGptqMinusOne, kGptqStored, kAwq };

struct AutoRoundPackingChoice {
  AutoRoundPacking packing = AutoRoundPacking::kGptqMinusOne;
  std::string name;  // in lower case, as declared; for messages
};

// packing_format, or else the legacy backend. A name that is not known, or that is known for
// tensors which are not read (FP8, MX, NVFP4, MLX, dequantized weights), is kUnsupported. Where
// both keys are there and differ, packing_format wins and it is a finding.
Result<AutoRoundPackingChoice> ParseAutoRoundPacking(const QuantizationConfig& config,
                                                     FindingTally& findings);

// kUnsupported, by name, unless the data type is one of plain integers. `where` is its field.
Status CheckAutoRoundDataType(std::string_view data_type, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AUTO_ROUND_PACKING_H_
