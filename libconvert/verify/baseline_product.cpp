#include "verify/baseline_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "check/baseline.h"
#include "formats/stored_linear.h"
#include "gemm/reference.h"

namespace prepack {

void BaselineProductSums::Merge(const BaselineProductSums& other) {
  weight_signal.Add(other.weight_signal);
  weight_noise.Add(other.weight_noise);
  output.Merge(other.output);
}

QualityFigures BaselineProductSums::Figures() const {
  return {.weight_sqnr_db = Decibel(weight_signal.Value(), weight_noise.Value()),
          .output_sqnr_db = output.Result().sqnr_db,
          .below_peers_db = {}};
}

Result<BaselineProduct> BaselineProduct::Find(const Checkpoint& baseline,
                                              const PackedModule& packed, const GemmInputs& inputs,
                                              Isa isa) {
  BaselineProduct product;
  product.baseline_ = &baseline;
  product.inputs_ = &inputs;
  product.isa_ = isa;
  std::vector<Finding> findings;
  product.weight_ = FindBaselineWeight(
      baseline, {.name = packed.name(), .n = packed.request().n, .k = packed.request().k},
      findings);
  if (product.weight_ == nullptr) {
    return Unsupported(findings.front().where, findings.front().message);
  }
  const StoredTensor* bias = baseline.Find(packed.name() + ".bias");
  if (bias != nullptr && bias->shape == std::vector{packed.request().n}) {
    product.bias_.resize(packed.request().n);
    Status status = ReadFloats(baseline, *bias, 0, product.bias_);
    if (!status.ok()) return status;
  }
  product.batch_ = kAllGaussianRows;
  for (size_t i = 0; i < inputs.batches().size(); ++i) {
    if (inputs.batches()[i].name == "recorded") product.batch_ = i;
  }
  return product;
}

Status BaselineProduct::Add(const OutputBlock& block, std::span<const double> quantized,
                            std::span<const float> y, BaselineProductBuffers& buffers,
                            BaselineProductSums& sums) const {
  const uint64_t k = inputs_->k();
  const uint64_t stored_k = weight_->shape[1];  // smaller where the quantizer has padded
  buffers.stored.resize(block.channels * stored_k);
  Status status = ReadFloats(*baseline_, *weight_, block.n0 * stored_k, buffers.stored);
  if (!status.ok()) return status;
  buffers.weights.assign(block.channels * k, 0);
  for (uint64_t row = 0; row < block.channels; ++row) {
    for (uint64_t j = 0; j < stored_k; ++j) {
      const auto weight = static_cast<double>(buffers.stored[row * stored_k + j]);
      const double error = weight - quantized[row * k + j];
      buffers.weights[row * k + j] = weight;
      sums.weight_signal.Add(weight * weight);
      sums.weight_noise.Add(error * error);
    }
  }
  buffers.y.resize(block.rows * block.channels);
  const InputBatch& rows = inputs_->batches()[batch_];
  ReferenceGemm(isa_, block.rows, block.channels, k,
                inputs_->exact().subspan(rows.first * k, rows.rows * k), buffers.weights,
                buffers.y);
  for (size_t i = 0; i < buffers.y.size() && !bias_.empty(); ++i) {
    buffers.y[i] += static_cast<double>(bias_[block.n0 + i % block.channels]);
  }
  sums.output.Add(block, buffers.y, y);
  return {};
}

}  // namespace prepack
