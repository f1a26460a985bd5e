#pragma once

// AWQ modules as QuantizedLinear; one class per layout (formats/awq/module.h has the shapes). All
// hold 4-bit codes and unsigned zero points as they multiply: the stored number is z, without the
// offset of GPTQ, and 0 and 15 are legal.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prepack/formats/awq/module.h"
#include "prepack/formats/stored_linear.h"

namespace prepack::awq {

// A module whose tensors have been checked: dtypes, and shapes against n, k and scheme.
struct ModuleParts {
  std::string module;
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  Tensors tensors;  // qzeros may be missing in a symmetric gemm module only
  // Quark stores the gemm layout, too: codes and zero points may be two's complement, and the
  // nibbles of a word in the order of the channels.
  bool is_signed = false;
  bool in_order = false;
  std::vector<const StoredTensor*> side_tensors;
  std::optional<InputQuantization> input;
};

// The results refer to the checkpoint, which must live longer.
std::unique_ptr<QuantizedLinear> MakeGemmLinear(const Checkpoint& checkpoint,
                                                const ModuleParts& parts);
std::unique_ptr<QuantizedLinear> MakeGemvLinear(const Checkpoint& checkpoint,
                                                const ModuleParts& parts);
// Zero points are not stored here but the products −scale · z, rounded to 16 bits. What is
// delivered is z, and W = (q − z) · scale: it differs from q · scale + product by that rounding,
// which is no part of the quantization. Where no z in 0 … 15 explains a product, it is
// kUnsupported.
std::unique_ptr<QuantizedLinear> MakeGemvFastLinear(const Checkpoint& checkpoint,
                                                    const ModuleParts& parts);

// What the three share.
class Linear : public StoredLinear {
 protected:
  Linear(const Checkpoint& checkpoint, const ModuleParts& parts);

  const Tensors& tensors() const { return tensors_; }
  bool is_signed() const { return is_signed_; }
  // kMalformed when the scheme is symmetric and one of the zero points [rows, G] is not 8, which of
  // two's complement is 0.
  Status CheckSymmetric(uint64_t n0, std::span<const uint8_t> zero_points) const;
  // The error for data where the GEMV layouts have padding: groups from G on.
  Status NotPadding(const StoredTensor& tensor, uint64_t n, uint64_t group) const;

 private:
  Tensors tensors_;
  bool is_signed_;
};

}  // namespace prepack::awq
