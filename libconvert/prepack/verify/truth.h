#pragma once

// The weights of a packed module as the second decoder reads them from the source, where it may be
// several modules.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/layouts/layout.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// Weights of output channels [n0, n0 + rows), of all input channels or of a slab of them; see
// SecondDecoder::Decode.
Status DecodeSourceRows(const SecondDecoder& source, const PackedModule& packed, uint64_t n0,
                        uint64_t rows, DecodedRows& out, const std::optional<InputSlab>& slab = {});
// The bias, one number per output channel; empty: the source has none. That only some members have
// one is kMalformed.
Status ReadSourceBias(const SecondDecoder& source, const PackedModule& packed,
                      std::vector<double>& bias);
// Static quantization of its activations. That those of members differ is kMalformed.
Result<DecodedInput> ReadSourceInput(const SecondDecoder& source, const PackedModule& packed);

// Ends of the runs of consecutive input channels with the same group.
std::vector<uint64_t> RunsOf(std::span<const uint64_t> group_of);

// What becomes of decoded weights before a kernel multiplies them, never computed from packed
// bytes.

// Appends their scales [rows, groups] as the layout stores them.
void AppendStoredScales(const Layout& layout, const PackRequest& request,
                        const DecodedRows& decoded, std::vector<float>& scales);

// The operands of decoded weights, and the weights themselves, in f64. The spans have one element
// per weight.
void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<double> operands);
// The same, rounded to f32 in the end.
void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<float> operands);
void FillExactWeights(const DecodedRows& decoded, std::span<double> weights);
// Those of some steps, with a scale each. `to_f16`: activations are f16, not bf16.
void FillKernelWeights(WeightRounding rounding, bool to_f16, std::span<const float> steps,
                       std::span<const float> scales, std::span<double> operands);
// Those of some steps with one scale, rounded to f32 in the end.
void FillKernelWeights(WeightRounding rounding, bool to_f16, std::span<const float> steps,
                       float scale, std::span<float> operands);
// Does the kernel read FP8 numbers below 2^-6 as if they had a leading one?
bool ReadsAsNormal(WeightRounding rounding);
// What it reads them as.
void ReadAllAsNormal(std::span<const float> steps, std::span<float> read);

// What a GEMM on one packed module should give: in f64, from the source, decoded by the second
// path.

// Outputs of a panel of output channels, and memory to compute them in; one per thread.
struct TruthPanel {
  std::vector<double> exact;   // [rows of the inputs, channels]: nothing rounded
  std::vector<double> kernel;  // activations, scales and weights as the kernel multiplies them
  DecodedRows decoded;
  DecodedRows scattered;        // some channels, where the inputs of a slab lie anywhere
  std::vector<double> weights;  // [channels, K of the inputs]; after Compute those of `exact`
};

// y[M, N] = x · Wᵀ for dense rows of x, then for rows that are zero except for a few channels.
struct TruthRows {
  std::span<const double> dense;  // [dense rows, K]
  std::span<const std::vector<HotInput>> hot;
};

// Dense rows of the inputs as the kernel multiplies them, [dense rows, K], in the order of
// inputs.exact(). `dense`: the model that has been given them.
std::vector<double> DenseRowsOfKernel(const GemmInputs& inputs, const KernelModel& dense);

class GemmTruth {
 public:
  // `dense` is DenseRowsOfKernel; `hot` is the model that has been given the other rows of the
  // inputs. The other arguments must outlive the truth.
  GemmTruth(const PackedModule& packed, const SecondDecoder& source, const GemmInputs& inputs,
            std::shared_ptr<const std::vector<double>> dense, const KernelModel& hot);

  // Adds the bias that the source gives the module, if any; without it, y has none.
  Status AddBias();

  // Output channels [n0, n0 + channels). Safe from any thread. The errors are those of the second
  // decoder.
  Status Compute(WeightRounding rounding, uint64_t n0, uint64_t channels, TruthPanel& panel) const;

  // The weights of these channels in the order of inputs.exact(). `scattered`: memory.
  Status Decode(uint64_t n0, uint64_t channels, DecodedRows& decoded, DecodedRows& scattered) const;

  const PackedModule& packed() const { return packed_; }
  const GemmInputs& inputs() const { return inputs_; }
  // Hot rows as the kernel multiplies them, and the bias as it adds it, [N] or none.
  std::span<const std::vector<HotInput>> kernel_hot() const { return kernel_hot_; }
  std::span<const double> kernel_bias() const { return kernel_bias_; }

 private:
  Status Gather(uint64_t n0, uint64_t channels, DecodedRows& out, DecodedRows& from) const;
  void Multiply(const TruthRows& rows, std::span<const double> weights, uint64_t channels,
                std::span<double> y) const;

  const PackedModule& packed_;
  const SecondDecoder& source_;
  const GemmInputs& inputs_;
  std::shared_ptr<const std::vector<double>> kernel_dense_;
  std::vector<std::vector<HotInput>> kernel_hot_;
  std::vector<double> exact_bias_;   // [N], or none
  std::vector<double> kernel_bias_;  // the same, rounded as the part is
};

}  // namespace prepack
