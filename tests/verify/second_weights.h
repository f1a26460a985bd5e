#pragma once

#include <string>
#include <vector>

#include "prepack/verify/second/decoder.h"
#include "status_matchers.h"

namespace prepack::testing {

// Decoded weights, rounded once, to f32.
inline std::vector<float> WeightsOf(const DecodedRows& decoded) {
  const uint64_t inputs = decoded.inputs();
  std::vector<float> weights;
  weights.reserve(decoded.steps.size());
  for (size_t i = 0; i < decoded.steps.size(); ++i) {
    const double scale =
        decoded.scales[i / inputs * decoded.groups() + decoded.group_of[i % inputs]];
    weights.push_back(static_cast<float>(static_cast<double>(decoded.steps[i]) * scale));
  }
  return weights;
}

// The weights of some rows by a second decoder.
inline std::vector<float> SecondWeights(const SecondDecoder& decoder, const std::string& module,
                                        uint64_t k, uint64_t n0, uint64_t rows) {
  DecodedRows decoded;
  RequireOk(decoder.Decode(module, k, n0, rows, decoded));
  // As bytes, where these are delivered, steps are the same.
  DecodedRows small;
  small.takes_small = true;
  RequireOk(decoder.Decode(module, k, n0, rows, small));
  small.Widen();
  REQUIRE(small.steps == decoded.steps);
  REQUIRE(small.scales == decoded.scales);
  return WeightsOf(decoded);
}

}  // namespace prepack::testing
