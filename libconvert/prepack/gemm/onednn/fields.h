#pragma once

// What oneDNN's public queries say of a memory descriptor, and what follows from it. The queries
// say nothing of the sums behind the weights, so those are derived from the size.

#include <cstdint>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/layouts/blocked_desc.h"

namespace prepack {

struct OneDnnFields {
  bool blocked = true;  // not opaque, sparse or undefined
  bool s8 = true;
  int64_t offset = 0;  // of the first element
  std::vector<int64_t> dims;
  std::vector<int64_t> padded_dims;
  std::vector<int64_t> strides;
  std::vector<int64_t> inner_sizes;  // outermost first
  std::vector<int64_t> inner_dims;   // of each inner block
  uint64_t bytes = 0;                // with what lies behind the elements
  std::string implementation;        // of the primitive that asks for it; may be empty

  friend bool operator==(const OneDnnFields&, const OneDnnFields&) = default;
};

// The descriptor of int8 weights [k, n] of a primitive for signed activations without zero points.
// kUnsupported when there is anything in it that a BlockedDesc cannot say.
Result<BlockedDesc> WeightsDescOf(const OneDnnFields& fields, uint64_t k, uint64_t n);

// The same for activations with zero points. Whether a single row of sums is for signed activations
// or for their zero points shows in what the primitive asks for without zero points.
Result<BlockedDesc> WeightsDescOf(const OneDnnFields& fields,
                                  const OneDnnFields& without_zero_points, uint64_t k, uint64_t n);

}  // namespace prepack
