#ifndef PREPACK_GEMM_FLOAT_MODEL_H_
#define PREPACK_GEMM_FLOAT_MODEL_H_

// The part that is common to kernels that multiply floats and sum in f32.

#include <cstdint>
#include <span>
#include <vector>

#include "gemm/strip_model.h"

namespace prepack {

class FloatModel : public StripModel<float, float> {
 public:
  // `x` as the kernel multiplies it; see StripModel.
  FloatModel(const PackedOperands& packed, const ModelInput& input, std::vector<float> x,
             uint64_t segment);
  // One sum over all input channels of x as it is given.
  FloatModel(const PackedOperands& packed, const ModelInput& input);

  std::vector<double> Activations() const override;

 protected:
  // Where there is one segment: its sums and the bias.
  void Fold(const ModelPiece& segment, const float* sums, float* results) const override;
  double WeightFactor(uint64_t /*n*/, uint64_t /*k*/) const override { return 1; }

  // How many input channels from in_k on have the same group of `group_size`.
  uint64_t InputsOfGroup(uint64_t in_k) const {
    return packed().group_size - in_k % packed().group_size;
  }
};

}  // namespace prepack

#endif  // PREPACK_GEMM_FLOAT_MODEL_H_
