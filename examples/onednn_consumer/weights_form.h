#ifndef ONEDNN_CONSUMER_WEIGHTS_FORM_H_
#define ONEDNN_CONSUMER_WEIGHTS_FORM_H_

// The form of a weight matrix [K, N] as plain fields. oneDNN's own descriptor is opaque and can
// only be compared within one version of the library; these fields can be stored.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "json_fields.h"

struct WeightsForm {
  std::array<uint64_t, 2> dims = {};  // K, N
  std::array<uint64_t, 2> padded_dims = {};
  std::array<uint64_t, 2> strides = {};        // of the blocks, in elements
  std::vector<std::array<uint64_t, 2>> inner;  // dimension and size, outermost first
  bool s8s8_compensation = false;              // behind the elements: i32 -128 * sum over K, per N
  bool zero_point_compensation = false;        // then: i32 -1 * sum over K, per N

  friend bool operator==(const WeightsForm&, const WeightsForm&) = default;

  // Place of weight (n, k), in elements.
  uint64_t Element(uint64_t n, uint64_t k) const;
  std::string ToString() const;
};

// Row-major [K, N]: the form of 4-bit weights.
WeightsForm PlainForm(uint64_t n, uint64_t k);

// "memory_descriptor" of a module in the manifest. Throws Refusal when it is no descriptor of [k,
// n].
WeightsForm StoredForm(const Fields& descriptor, uint64_t n, uint64_t k);

#endif  // ONEDNN_CONSUMER_WEIGHTS_FORM_H_
