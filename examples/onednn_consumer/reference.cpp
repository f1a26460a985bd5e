#include "reference.h"

#include <cmath>
#include <limits>

#include "floats.h"

namespace {

// Element i of an array of unsigned nibbles, the even ones in the low halves of bytes.
int Nibble(std::span<const std::byte> bytes, uint64_t i) {
  return std::to_integer<int>(bytes[i / 2]) >> (i % 2 * 4) & 15;
}

double Weight(const Module& module, const Operands& operands, uint64_t n, uint64_t k) {
  const uint64_t at = k / module.group_size * module.n + n;  // of [G, N]
  const int zero_point = operands.zero_point.empty() ? 0 : Nibble(operands.zero_point, at);
  return (Code(module, operands, n, k) - zero_point) *
         static_cast<double>(Load<float>(operands.scale, at));
}

}  // namespace

int Code(const Module& module, const Operands& operands, uint64_t n, uint64_t k) {
  const uint64_t element = module.form.Element(n, k);
  if (!module.Is4Bit()) return Load<int8_t>(operands.weight, element);
  const int nibble = Nibble(operands.weight, element);
  return module.symmetric && nibble > 7 ? nibble - 16 : nibble;  // s4 is two's complement
}

std::vector<double> ReferenceProduct(const Module& module, const Operands& operands,
                                     std::span<const float> x, std::span<const uint64_t> order) {
  const uint64_t rows = x.size() / module.k;
  std::vector<double> y(rows * module.n);
  for (uint64_t n = 0; n < module.n; ++n) {
    for (uint64_t m = 0; m < rows && !operands.bias_values.empty(); ++m) {
      y[m * module.n + n] = operands.bias_values[n];
    }
    for (uint64_t k = 0; k < module.k; ++k) {
      const double weight = Weight(module, operands, n, k);
      const uint64_t column = order.empty() ? k : order[k];
      for (uint64_t m = 0; m < rows; ++m) y[m * module.n + n] += x[m * module.k + column] * weight;
    }
  }
  return y;
}

double SqnrDb(std::span<const float> found, std::span<const double> expected) {
  double signal = 0;
  double noise = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    signal += expected[i] * expected[i];
    noise += (found[i] - expected[i]) * (found[i] - expected[i]);
  }
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}
