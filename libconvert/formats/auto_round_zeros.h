#ifndef PREPACK_FORMATS_AUTO_ROUND_ZEROS_H_
#define PREPACK_FORMATS_AUTO_ROUND_ZEROS_H_

// How AutoRound's asymmetric modules in the tensors of GPTQ store their zero points: as
// packing_format says, but for one kind of export that lies (mirrors auto-round 0.15 and 0.16,
// auto_round/utils/model_free_utils.py):
//
//     calibration-free (model_free), labelled "auto_round"     stored
//     before 0.16.0                                            z − 1
//     from 0.16.0 on                                           z, as the label says
//
// The weights of the whole model tell which of them it is (gptq_evidence.h): single modules may be
// too small, or have weights that do not lie around zero. Where all of them together do not tell
// (8 bits, tiny models), the version of the writer does; without one, the label counts.

#include <string>
#include <vector>

#include "formats/auto_round_config.h"
#include "formats/auto_round_match.h"
#include "formats/gptq_module.h"
#include "formats/module_tensors.h"

namespace prepack {

struct AutoRoundZeros {
  GptqZeros zeros = GptqZeros::kMinusOne;
  std::string contradicts;  // why the label is not followed; empty where it is
};

AutoRoundZeros ChooseAutoRoundZeros(const Checkpoint& checkpoint,
                                    const std::vector<ModuleTensors>& modules,
                                    const AutoRoundConfig& config, const AutoRoundMatcher& matcher);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AUTO_ROUND_ZEROS_H_
