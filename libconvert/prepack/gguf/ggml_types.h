#pragma once

// The types of tensors in a GGUF file, by ggml's names and numbers: how many weights a block has,
// and how many bytes.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "prepack/base/dtype.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"

namespace prepack::gguf {

// The numbers are those in the file. Left out are types that no file holds: those of activations
// (Q8_1, Q8_K), and those that ggml has retired.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
};

// What the numbers are that scale the codes of a block.
enum class ScaleKind : uint8_t { kNone, kF16, kE8M0, kUE4M3 };

struct GgmlTypeInfo {
  GgmlType type = GgmlType::kF32;
  std::string_view name;
  uint32_t block = 1;  // weights
  uint32_t bytes = 0;  // of a block
  // Where in a block they are: scales and minima alike. Those of Q6_K's kind that are integers and
  // scale the scale are not among them.
  ScaleKind scale_kind = ScaleKind::kNone;
  FixedVector<uint32_t, 4> scale_offsets = {};

  double BitsPerWeight() const { return 8.0 * bytes / block; }
};

std::span<const GgmlTypeInfo> AllGgmlTypes();
// Null for a number or a name that none of them has.
const GgmlTypeInfo* FindGgmlType(uint32_t number);
const GgmlTypeInfo* FindGgmlType(std::string_view name);
const GgmlTypeInfo& InfoOf(GgmlType type);
// The type that holds BF16 or F16 as it is; F32 for anything else.
GgmlType FloatTypeOf(DType dtype);

// The dimensions of a tensor as ggml counts them: the first is the one that is contiguous.
inline constexpr size_t kMaxDims = 4;
using Dims = FixedVector<uint64_t, kMaxDims>;

// Nothing when the size overflows, or when the first dimension is no multiple of the block.
std::optional<uint64_t> BytesOf(GgmlType type, const Dims& dims);

}  // namespace prepack::gguf
