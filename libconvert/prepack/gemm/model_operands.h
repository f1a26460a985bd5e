#pragma once

// What all models need of their operands: checks, loads from bytes of any alignment, and rounding.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/gemm/kernel_model.h"

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

// All elements of a tensor of F32, BF16 or F16 values, or of U8, which are exponents of scales;
// none for an empty span.
std::vector<float> LoadFloats(DType dtype, std::span<const std::byte> bytes);

// The bias of output channel n, 0 without a bias.
inline float BiasOf(const std::vector<float>& bias, uint64_t n) {
  return bias.empty() ? 0.0F : bias[n];
}

// Rows of activations as the models multiply them: whole, or, where a row is nearly all zero, just
// the numbers that are not. x = 0 adds exactly nothing to a sum, as long as weights are finite.

// Number x at input channel k.
template <typename T>
struct ModelEntry {
  uint64_t k;
  T x;
};

// Row m, of which `entries` differ from `base`; ascending k.
template <typename T>
struct SparseModelRow {
  uint64_t m;
  T base;
  std::vector<ModelEntry<T>> entries;

  // Those of input channels [begin, end).
  std::span<const ModelEntry<T>> Between(uint64_t begin, uint64_t end) const {
    const auto before = [](const ModelEntry<T>& entry, uint64_t k) { return entry.k < k; };
    const auto first = std::lower_bound(entries.begin(), entries.end(), begin, before);
    return {first, std::lower_bound(first, entries.end(), end, before)};
  }
};

template <typename T>
struct ModelRows {
  std::vector<uint64_t> dense;  // ascending m
  std::vector<SparseModelRow<T>> sparse;
};

// Divides the rows of x [M, K] with K = k; base[m] is what zero became in row m. A row is sparse
// when less than an eighth of it differs from that.
template <typename T>
ModelRows<T> DivideRows(std::span<const T> x, uint64_t k, std::span<const T> base) {
  ModelRows<T> rows;
  for (uint64_t m = 0; m < base.size(); ++m) {
    const std::span<const T> row = x.subspan(m * k, k);
    const auto zeros = static_cast<uint64_t>(std::count(row.begin(), row.end(), base[m]));
    if (8 * (k - zeros) >= k) {
      rows.dense.push_back(m);
      continue;
    }
    SparseModelRow<T> sparse{.m = m, .base = base[m], .entries = {}};
    for (uint64_t i = 0; i < k; ++i) {
      if (row[i] != base[m]) sparse.entries.push_back({.k = i, .x = row[i]});
    }
    rows.sparse.push_back(std::move(sparse));
  }
  return rows;
}

}  // namespace prepack
