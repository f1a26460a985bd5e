#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_PACK_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_PACK_H_

// The shape of a pack-quantized weight, and which of the two packings it is in: from headers and
// the few bytes of weight_shape alone.

#include "base/result.h"
#include "formats/compressed_tensors_config.h"
#include "formats/compressed_tensors_module.h"
#include "formats/finding_tally.h"
#include "formats/row_checks.h"
#include "formats/row_linear.h"

namespace prepack {

struct CtPackedShape {
  MatrixShape shape;
  RowCodes packing = RowCodes::kDense;
};

// `module` has been classified as kPackQuantized, and `weights` are those of its group.
//
// For 3, 5, 6 and 7 bits the number of words tells the packing. Where both packings give the same
// number, the version of the config decides (dense since 0.18.0); where there is none, or where it
// contradicts the number of words, the checkpoint is kMalformed: a guess would scramble the
// weights.
Result<CtPackedShape> FindCtPackedShape(const Checkpoint& checkpoint, const CtModule& module,
                                        const CtArgs& weights, const CtConfig& config,
                                        FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_PACK_H_
