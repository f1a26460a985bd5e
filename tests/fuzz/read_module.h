#ifndef PREPACK_TESTS_FUZZ_READ_MODULE_H_
#define PREPACK_TESTS_FUZZ_READ_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "prepack/model/quantized_linear.h"

namespace prepack::fuzz {

// All that a module delivers.
inline Status ReadModule(const QuantizedLinear& linear) {
  const PanelRange all{.n0 = 0, .rows = linear.n(), .k0 = 0, .cols = linear.k()};
  std::vector<std::byte> codes(PanelBytes(linear.scheme().code, all));
  Status status = linear.ReadCodes(all, codes);
  if (!status.ok()) return status;
  std::vector<float> scales(linear.n() * linear.groups());
  status = linear.ReadScales(0, linear.n(), scales);
  if (!status.ok()) return status;
  std::vector<uint8_t> zero_points(scales.size());
  status = linear.ReadZeroPoints(0, linear.n(), zero_points);
  if (!status.ok()) return status;
  if (const auto order = linear.KOrder(); !order.ok()) return order.status();
  return linear.CountStrayBits().status();
}

}  // namespace prepack::fuzz

#endif  // PREPACK_TESTS_FUZZ_READ_MODULE_H_
