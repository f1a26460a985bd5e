#pragma once

// What the readers of all formats share: a quantized module whose bytes lie in a checkpoint.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/formats/accepted.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

class StoredLinear : public QuantizedLinear, public SourcePlaces {
 public:
  const SourcePlaces* places() const override { return this; }

 protected:
  // Refers to the checkpoint, which must live longer.
  explicit StoredLinear(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), accepted_(AcceptanceScope::Here()) {}
  // Another view of a module: of the same checkpoint, with the same findings accepted.
  struct ViewOf {
    const StoredLinear& other;
  };
  explicit StoredLinear(ViewOf view)
      : checkpoint_(view.other.checkpoint_), accepted_(view.other.accepted_) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }

  // Notes a tensor that the module is made of. `sharers` modules lie in it.
  void AddSource(const StoredTensor& tensor, uint64_t sharers = 1);

  // kMalformed when one of the scales [rows, G] of channels from n0 on is not finite, or is zero
  // while its group has weights and that is not accepted; what is accepted is noted. `tensor` is
  // where they were read from, for the message.
  Status CheckScales(const StoredTensor& tensor, uint64_t n0, uint64_t rows,
                     std::span<const float> scales) const;

 private:
  Status CheckZeroScale(const StoredTensor& tensor, uint64_t n, uint64_t group) const;
  Status RefuseZeroScale(Status why, const StoredTensor& tensor) const;

  const Checkpoint& checkpoint_;
  AcceptedFindings accepted_;
  mutable std::atomic<bool> zero_scales_accepted_ = false;  // one was found, and is
};

// Where element `index` of the tensor lies.
StoredBits WhereElement(const StoredTensor& tensor, uint64_t index);

// Reads floats of dtype BF16, F16 or F32 and widens them: `out.size()` elements from element
// `first` on.
Status ReadFloats(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t first,
                  std::span<float> out);

// The same for channels [n0, n0 + rows) of a tensor [groups, n] that is stored group by group:
// `out` is [rows, groups].
Status ReadFloatColumns(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t n,
                        uint64_t groups, uint64_t n0, uint64_t rows, std::span<float> out);

// transformers' Conv1D, of GPT-2 and its relatives (mirrors transformers 5, pytorch_utils.py): a
// linear layer whose weight is stored [K, N]. Quantizers that know the class store it as any other
// linear layer; those that take matrices from the files alone (llm-compressor's model_free_ptq)
// quantize the rows of [K, N], so that the scales belong to input channels.

// `config` is config.json of the model.
bool IsConv1d(const Json& config, std::string_view module);

// kUnsupported where the bias shows that `weight`, whose codes are [rows, columns], is that of a
// Conv1D and is still stored [K, N]. Of a square matrix, only its neighbours can tell.
Status RefuseInputsFirst(const Checkpoint& checkpoint, std::string_view module,
                         const StoredTensor& weight, uint64_t rows, uint64_t columns);

// A module that was stored with input channels that the model does not have: AutoRound's
// calibration-free export pads K to whole groups. The extra ones are dropped.

// `k` is even, below padded->k() and in its last group; `padded` has no k_order. Reading a panel
// that ends at k checks that what is dropped are zeros (codes that equal the zero point); anything
// else is kMalformed.
std::unique_ptr<QuantizedLinear> TrimInputs(std::unique_ptr<QuantizedLinear> padded, uint64_t k);

}  // namespace prepack
