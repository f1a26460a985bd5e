#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "prepack/base/random.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/panel.h"
#include "prepack/model/scheme.h"

namespace prepack::testing {

inline Scheme IntegerScheme(CodeType code, uint32_t bits, uint64_t group, bool symmetric) {
  return {.code = code,
          .bits = bits,
          .granularity = Granularity::kGroup,
          .group_size = group,
          .symmetric = symmetric};
}

// A row of random codes, in the form of a panel, with scales that every type holds exactly.
struct RandomRow {
  RandomRow(const Scheme& scheme, uint64_t k, SplitMix64& random)
      : codes(PanelRowBytes(scheme.code, k)) {
    for (uint64_t i = 0; i < k; ++i) {
      uint64_t code = random.Below(uint64_t{1} << scheme.bits);
      if (scheme.code == CodeType::kS8) code -= uint64_t{1} << (scheme.bits - 1);
      const auto byte = static_cast<std::byte>(code & (IsNibble(scheme.code) ? 15U : 255U));
      if (IsNibble(scheme.code)) {
        codes[i / 2] |= byte << (4 * (i % 2));
      } else {
        codes[i] = byte;
      }
    }
    for (uint64_t g = 0; g * scheme.group_size < k; ++g) {
      const auto exponent = static_cast<int>(random.Below(6));
      scales.push_back(std::ldexp(1.0F, exponent - 8));
      zero_points.push_back(scheme.symmetric ? ZeroOfSymmetric(scheme)
                                             : static_cast<uint8_t>(random.Below(16)));
    }
  }

  float Weight(const Scheme& scheme, uint64_t k) const {
    const uint8_t code =
        PanelCode(scheme.code, codes, codes.size() * 8 / CodeBits(scheme.code), 0, k);
    const uint64_t g = k / scheme.group_size;
    return (CodeValues(scheme.code)[code] - static_cast<float>(zero_points[g])) * scales[g];
  }

  gguf::CodeRow row() const {
    return {.codes = codes, .scales = scales, .zero_points = zero_points};
  }

  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
};

}  // namespace prepack::testing
