// The second path for layers that no quantizer touched: MODULE.weight, BF16 [N, K], without scales.

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {

bool HasSecondPlain(const Checkpoint& source, const SecondRows& wanted) {
  const StoredTensor* weight = source.Find(wanted.module + ".weight");
  return weight != nullptr && weight->dtype == DType::kBF16 && weight->shape.size() == 2 &&
         weight->shape[1] == wanted.k && source.Find(wanted.module + ".weight_scale") == nullptr &&
         source.Find(wanted.module + ".weight_scale_inv") == nullptr;
}

Status DecodePlain(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  PREPACK_TRY_ASSIGN(const StoredTensor* weight, SecondTensor(source, wanted.module + ".weight"));
  const SecondRange range{
      .row = wanted.n0, .rows = wanted.rows, .column = wanted.k0, .columns = wanted.inputs};
  PREPACK_TRY(ReadSecond(source, *weight, range, out.buffers.halves));
  out.Resize(out.buffers.halves.size(), false);
  for (size_t i = 0; i < out.steps.size(); ++i) out.steps[i] = BF16ToF32(out.buffers.halves[i]);
  out.scales.assign(wanted.rows, 1.0);
  out.group_of.assign(wanted.inputs, 0);
  return {};
}

}  // namespace prepack
