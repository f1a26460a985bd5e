#pragma once

// One packed module against its source: every part of it.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/folder.h"

namespace prepack {

// Panels are merged in any order, so the first difference is that with the smallest (n, k),
// whatever the timing.
struct ModuleDifferences {
  uint64_t codes = 0;
  uint64_t zero_points = 0;
  uint64_t scales = 0;
  uint64_t extra_tiles = 0;  // in which sums or padding beside the codes are wrong
  uint64_t weight_sums = 0;
  std::vector<std::string> parts;                                       // small parts that differ
  std::pair<uint64_t, uint64_t> first_code = {UINT64_MAX, UINT64_MAX};  // n, k
  unsigned first_found = 0;
  unsigned first_expected = 0;
  double max_scale_difference = 0;
  // No difference, but what the manifest is to say: scales that the layout gives another value.
  uint64_t rounded_scales = 0;

  bool none() const;
  void Merge(const ModuleDifferences& other);
  // A sentence that says what differs, and where first.
  std::string Describe() const;
};

// What one thread of CompareModule allocates for such a module, in bytes; at most.
uint64_t MemoryOfComparison(const PackedModule& packed, const QuantizedLinear& weights);

// `weights` is what was packed: `linear` itself, or the module dequantized. Shapes and schemes must
// have been found equal.
Result<ModuleDifferences> CompareModule(const PackedModule& packed, const Checkpoint& source,
                                        const QuantizedLinear& linear,
                                        const QuantizedLinear& weights, unsigned threads,
                                        Progress& progress);

}  // namespace prepack
