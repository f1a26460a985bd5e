#ifndef PREPACK_VERIFY_SECOND_MODEL_FREE_H_
#define PREPACK_VERIFY_SECOND_MODEL_FREE_H_

// Calibration-free exports of AutoRound (model_free) say "auto_round" of asymmetric modules, which
// means that z is stored. Up to 0.15 it was z − 1. By code of its own, as the whole second path:
//
//     mean over the first groups of many modules of (code − stored field)   near 0: z,  near 1: z −
//     1
//
// Left out are modules whose fields are all one number (they are symmetric), and fields near the
// ends of their range. Where the mean does not tell, the version of AutoRound does.

#include "container/checkpoint.h"

namespace prepack {

// True for an export that stores z − 1 although its label says z.
bool IsOldModelFree(const Checkpoint& source);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_MODEL_FREE_H_
