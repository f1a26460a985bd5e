#ifndef PREPACK_CHECK_MODEL_JUDGEMENT_H_
#define PREPACK_CHECK_MODEL_JUDGEMENT_H_

// Modules judged by each other and by what weights of any model are like. None of it looks at the
// quantization config, so it notices where that is misread as a whole, such as a divisor taken for
// a factor:
//   size        rms(W) · √K, by which a module multiplies what comes in. Working models have it
//               near 1, whatever their width: training keeps activations in range. A module is
//               also compared with its peers in other layers
//   copies      two modules with the same codes, or with the same scales

#include <vector>

#include "prepack/check/check.h"

namespace prepack {

// rms(W) · √K of a module. 0.2 to 5 in real and in newly initialised models; the bars leave room
// for models whose activations are scaled (a factor of 12 in some), and catch a factor of a
// thousand.
inline constexpr double kLargestSize = 30;
inline constexpr double kSmallestSize = 0.01;
// Against the median of the peers, at least kMinSizePeers with it.
inline constexpr double kPeerSize = 100;
inline constexpr size_t kMinSizePeers = 3;
// Findings of modules are appended to them, those of the whole model to `findings`.
void JudgeModel(std::vector<ModuleCheck>& modules, std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_MODEL_JUDGEMENT_H_
