#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_LINEAR_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_LINEAR_H_

// A pack-quantized module of 4 bits as a QuantizedLinear. The drawing of the bytes is in
// compressed_tensors.h. Codes and packed zero points are stored with their offset of 8, so they
// already are the unsigned canonical ones; in a row of eight codes per word, byte m holds code 2m
// in its low half and 2m + 1 in its high half, which is how a panel holds them: reading copies.

#include <string>

#include "canonical/quantized_linear.h"
#include "container/checkpoint.h"

namespace prepack {

// How the zero points are stored.
enum class CtZeroPoints : uint8_t {
  kNone,      // no tensor: 8 throughout
  kPacked,    // I32 [⌈N/8⌉, G], eight rows per word, + 8
  kUnpacked,  // I8 [N, G], signed
};

// A module whose tensors have been checked: dtypes, and shapes against n, k and scheme.
struct CtPackedModule {
  std::string module;
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  const StoredTensor* packed = nullptr;      // I32 [N, ⌈K/8⌉]
  const StoredTensor* scale = nullptr;       // BF16, F16 or F32, N·G elements
  const StoredTensor* zero_point = nullptr;  // nullptr for kNone
  CtZeroPoints zero_points = CtZeroPoints::kNone;
  // What else belongs to the module: weight_shape, weight_g_idx.
  std::vector<const StoredTensor*> side_tensors;
};

class CompressedTensorsLinear final : public QuantizedLinear {
 public:
  // Refers to the checkpoint, which must live longer.
  CompressedTensorsLinear(const Checkpoint& checkpoint, const CtPackedModule& parts);

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  // A zero scale is accepted where every weight of its group is zero whatever the scale.
  // Where a symmetric module has zero points left over, they are checked here: callers need not ask
  // for those.
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;

 private:
  Status CheckRows(uint64_t n0, uint64_t rows, size_t out_size) const;
  Status CheckZeroScale(uint64_t n, uint64_t group) const;
  Status ReadPackedZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const;
  Status ReadUnpackedZeroPoints(uint64_t n0, std::span<uint8_t> out) const;

  const Checkpoint& checkpoint_;
  const StoredTensor& packed_;
  const StoredTensor& scale_;
  const StoredTensor* zero_point_;
  CtZeroPoints zero_points_;
};

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_LINEAR_H_
