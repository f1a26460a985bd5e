#pragma once

// How two matrices of weights differ, and what that is called.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/report/page.h"

namespace prepack {

inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// A weight in its stored terms.
struct StoredWeight {
  int code = 0;  // the number that an integer code is; the bits of an FP8 one
  uint8_t zero_point = 0;
  float scale = 0;
  int step = 0;  // code − zero point; 0 for FP8
};

// Two weight matrices, element by element.
//
//   identical   every weight has the same bits in f32, and comes from the same step (code − zero
//               point) and the same scale. How codes are held (s8, or u8 with zero point 128), how
//               large groups are and in which order inputs are stored does not matter.
//   equal       |a − b| ≤ r · max(|a|, |b|) for every weight, where r is what one rounding to the
//               coarser of the two stored scale dtypes can do (2^-8 for bf16, 2^-11 for f16, 2^-24
//               for f32) plus 2^-23 for the two products in f32
//   different   otherwise
//
// Of headers alone, modules of one shape are "not compared".

enum class DiffVerdict : uint8_t {
  kIdentical,
  kEqual,
  kDifferent,
  kShapeDiffers,
  kOnlyInA,
  kOnlyInB,
  kNotCompared,
};

std::string_view DiffVerdictName(DiffVerdict verdict);  // "identical", …, "only in B"
// kIdentical or kEqual; or nobody asked for more than headers, which agree.
bool IsSame(DiffVerdict verdict);
Tone ToneOf(DiffVerdict verdict);

inline constexpr size_t kWorstElements = 5;

struct ElementSide {
  float value = 0;
  std::optional<StoredWeight> stored;  // none: a float tensor
};

struct WorstElement {
  uint64_t n = 0;
  uint64_t k = 0;
  ElementSide a;
  ElementSide b;
};

// Sums over a stripe of rows, mergeable in the order of the stripes.
struct WeightDifferences {
  uint64_t elements = 0;
  uint64_t unequal = 0;  // weights whose values differ at all
  uint64_t beyond = 0;   // by more than the rounding allows
  // Do scales differ although values do not? Only looked for until any value differs.
  bool other_scales = false;
  double max_absolute = 0;
  double max_relative = 0;          // of max(|a|, |b|)
  double signal = 0;                // Σ a²
  double noise = 0;                 // Σ (a − b)²
  std::vector<WorstElement> worst;  // by |a − b|, then by position; values only

  // Adds weights [first, first + a.size()) of a matrix with K input channels, row after row. Beyond
  // is |a − b| > tolerance · max(|a|, |b|).
  void Add(std::span<const float> a, std::span<const float> b, uint64_t first, uint64_t k,
           double tolerance);
  void Merge(const WeightDifferences& other);
  DiffVerdict Verdict() const;
  // B against A: 10 · log10(signal / noise). Infinite without noise; nullopt without signal.
  std::optional<double> SqnrDb() const;
};

}  // namespace prepack
