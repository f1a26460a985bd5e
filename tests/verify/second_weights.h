#ifndef PREPACK_TESTS_VERIFY_SECOND_WEIGHTS_H_
#define PREPACK_TESTS_VERIFY_SECOND_WEIGHTS_H_

#include <string>
#include <vector>

#include "status_matchers.h"
#include "verify/second_decoder.h"

namespace prepack::testing {

// The weights of some rows by a second decoder, rounded once, to f32.
inline std::vector<float> SecondWeights(const SecondDecoder& decoder, const std::string& module,
                                        uint64_t k, uint64_t n0, uint64_t rows) {
  DecodedRows decoded;
  RequireOk(decoder.Decode(module, k, n0, rows, decoded));
  std::vector<float> weights;
  for (size_t i = 0; i < decoded.steps.size(); ++i) {
    const double scale = decoded.scales[i / k * decoded.groups() + decoded.group_of[i % k]];
    weights.push_back(static_cast<float>(static_cast<double>(decoded.steps[i]) * scale));
  }
  return weights;
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_VERIFY_SECOND_WEIGHTS_H_
