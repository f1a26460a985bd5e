#ifndef PREPACK_FORMATS_STORED_LINEAR_H_
#define PREPACK_FORMATS_STORED_LINEAR_H_

// What the readers of all formats share: a quantized module whose bytes lie in a checkpoint.

#include <cstdint>
#include <span>
#include <string_view>

#include "canonical/quantized_linear.h"
#include "container/checkpoint.h"
#include "formats/accepted_findings.h"

namespace prepack {

class StoredLinear : public QuantizedLinear, public SourcePlaces {
 public:
  const SourcePlaces* places() const override { return this; }

 protected:
  // Refers to the checkpoint, which must live longer.
  explicit StoredLinear(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), accepts_zero_scales_(AcceptanceScope::Has("scale-zero")) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }

  // Notes a tensor that the module is made of. `sharers` modules lie in it.
  void AddSource(const StoredTensor& tensor, uint64_t sharers = 1);

  // kMalformed when one of the scales [rows, G] of channels from n0 on is not finite, or is zero
  // while its group has weights and that is not accepted. `tensor` is where they were read from,
  // for the message.
  Status CheckScales(const StoredTensor& tensor, uint64_t n0, uint64_t rows,
                     std::span<const float> scales) const;

 private:
  Status CheckZeroScale(const StoredTensor& tensor, uint64_t n, uint64_t group) const;

  const Checkpoint& checkpoint_;
  bool accepts_zero_scales_;
};

// For an index of groups that held an order when its module was described, and now holds none.
Status OrderHasChanged(std::string_view where);

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

}  // namespace prepack

#endif  // PREPACK_FORMATS_STORED_LINEAR_H_
