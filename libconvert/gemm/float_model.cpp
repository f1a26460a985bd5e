#include "gemm/float_model.h"

#include <utility>

namespace prepack {

FloatModel::FloatModel(const PackedOperands& packed, const ModelInput& input, std::vector<float> x,
                       uint64_t segment)
    : StripModel(packed, input, std::move(x), std::vector<float>(input.m), segment) {}

FloatModel::FloatModel(const PackedOperands& packed, const ModelInput& input)
    : FloatModel(packed, input, {input.x.begin(), input.x.end()}, packed.k) {}

std::vector<double> FloatModel::Activations() const {
  return {values().begin(), values().end()};
}

void FloatModel::Fold(const ModelPiece& segment, const float* sums, float* results) const {
  for (uint64_t row = 0; row < m(); ++row) {
    for (uint64_t i = 0; i < segment.rows; ++i) {
      const uint64_t at = row * kModelBlock + i;
      results[at] = sums[at] + Bias(segment.n0 + i);
    }
  }
}

}  // namespace prepack
