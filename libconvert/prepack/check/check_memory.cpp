#include "prepack/check/check_memory.h"

#include <algorithm>

#include "prepack/model/panel.h"

namespace prepack {

bool SpreadsRows(const QuantizedLinear& linear) {
  return linear.wide_rows() > 1 || linear.reordered();
}

uint64_t MemoryOfRows(const QuantizedLinear& linear, uint64_t rows) {
  const uint64_t codes = rows * PanelRowBytes(linear.scheme().code, linear.k());
  const uint64_t numbers = rows * linear.groups() * (sizeof(float) + sizeof(uint8_t));
  // The words that codes and zero points are taken out of, and the order of the input channels as
  // it is stored and as it is kept.
  const uint64_t stored = codes + rows * linear.groups() * sizeof(uint32_t);
  const uint64_t order = linear.reordered() ? linear.k() * 4 * sizeof(uint32_t) : 0;
  return codes + numbers + stored + order;
}

uint64_t MemoryOfCheck(const QuantizedLinear& linear, bool with_baseline) {
  const uint64_t k = linear.k();
  const uint64_t rows = std::min(StripePanelRows(k), linear.n());
  // Energies, in k_order and in that of the checkpoint; scales and zero points of a row.
  uint64_t bytes = MemoryOfRows(linear, rows) + 4 * k * sizeof(float);
  // Sums of two kinds by input channel, those of nibbles apart, and hashes of eights of them.
  if (SpreadsRows(linear)) bytes += k * (2 * sizeof(uint32_t) + 2 * sizeof(uint16_t) + 2);
  if (with_baseline) bytes += MemoryOfRows(linear, rows) + (rows + 1) * k * 2 * sizeof(float);
  return bytes;
}

}  // namespace prepack
