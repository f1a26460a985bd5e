#pragma once

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
