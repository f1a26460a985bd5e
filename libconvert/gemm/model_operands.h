#ifndef PREPACK_GEMM_MODEL_OPERANDS_H_
#define PREPACK_GEMM_MODEL_OPERANDS_H_

// What all models need of their operands: checks, loads from bytes of any alignment, and rounding.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/float_convert.h"
#include "gemm/kernel_model.h"

namespace prepack {

// Columns of x: K, or one more than the slab has.
inline uint64_t InputColumns(const PackedOperands& packed, const ModelInput& input) {
  return input.slab ? input.slab->inputs + 1 : packed.k;
}

// Sizes above 0 and below 2^31, x of M rows of finite values of the type, and a slab that models
// take.
// Sums of a few sizes cannot overflow after this; products still can.
Status CheckModelInput(const PackedOperands& packed, const ModelInput& input);

// See KernelModel::Run.
Status CheckOutput(std::span<const float> y, uint64_t m, uint64_t n0, uint64_t n);

// The checks of one layout, in order; what counts is the first that fails.
class OperandCheck {
 public:
  // `ok`, or else the rule that is broken and what was found.
  void Rule(bool ok, std::string_view rule, uint64_t found);
  void Rule(bool ok, std::string_view rule, std::string_view found);
  void Groups(const PackedOperands& packed);  // K is cut into whole groups
  void Type(std::string_view operand, DType found, std::initializer_list<DType> allowed);
  // The operand has as many bytes as the product of `factors`.
  void Bytes(std::string_view operand, std::span<const std::byte> bytes,
             std::initializer_list<uint64_t> factors);
  // The layout has no such operand.
  void Absent(std::string_view operand, std::span<const std::byte> bytes);
  // There is no bias, or one per output channel in one of these types.
  void Bias(const PackedOperands& packed, std::initializer_list<DType> allowed);

  const Status& status() const { return status_; }

 private:
  void Fail(Status status);

  Status status_;
};

// Element `index` of `bytes`. The caller has checked the size.
template <typename T>
T Load(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Nibble `index`: byte index / 2, the low half when the index is even.
inline int LoadNibble(std::span<const std::byte> bytes, uint64_t index) {
  return (std::to_integer<int>(bytes[index / 2]) >> (index % 2 * 4)) & 15;
}

// Up to 16 nibbles from byte `first` on, the first lowest.
inline uint64_t LoadNibbles(std::span<const std::byte> bytes, uint64_t first, uint64_t count) {
  uint64_t word = 0;
  if (count == 16) {  // by far the most frequent; a copy of a known size is one instruction
    std::memcpy(&word, bytes.data() + first, sizeof(word));
  } else {
    std::memcpy(&word, bytes.data() + first, (count + 1) / 2);
  }
  return word;
}

// A nibble read as two's complement.
constexpr int SignedNibble(int nibble) {
  return (nibble ^ 8) - 8;
}

// Byte `index` read as two's complement.
inline int LoadS8(std::span<const std::byte> bytes, uint64_t index) {
  return (std::to_integer<int>(bytes[index]) ^ 128) - 128;
}

// All elements of a tensor of F32, BF16 or F16 values; none for an empty span.
std::vector<float> LoadFloats(DType dtype, std::span<const std::byte> bytes);

// The bias of output channel n, 0 without a bias.
inline float BiasOf(const std::vector<float>& bias, uint64_t n) {
  return bias.empty() ? 0.0F : bias[n];
}

}  // namespace prepack

#endif  // PREPACK_GEMM_MODEL_OPERANDS_H_
