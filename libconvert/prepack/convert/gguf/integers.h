#pragma once

// The integers that the types of ggml hold, and those of a module.

#include <cstdint>
#include <span>
#include <string>

#include "prepack/gguf/ggml_types.h"
#include "prepack/model/scheme.h"

namespace prepack::gguf {

// What a type holds: codes less their zero points, or codes over a minimum.
struct IntegerRange {
  GgmlType type = GgmlType::kF32;
  int low = 0;
  int high = 0;
  bool has_minima = false;
  uint32_t group = 32;  // weights with a scale of their own
  // Scales of groups are whole numbers from `least_factor` to `most_factor` times one f16 for the
  // superblock; both 0: they are f16 themselves.
  int least_factor = 0;
  int most_factor = 0;

  bool has_superblocks() const { return most_factor != 0; }
};

// Null for a type that holds no integers.
const IntegerRange* RangeOf(GgmlType type);

// A sentence if the integers that codes of the scheme mean are not all in the range, or the codes
// are no integers; else empty.
std::string WhyNotIn(const IntegerRange& range, const Scheme& scheme);

// The integers of some codes from place `first` on, out of a row as a panel has it.
void TakeIntegers(CodeType type, const uint8_t* codes, uint64_t first, int zero_point,
                  std::span<int> integers);

}  // namespace prepack::gguf
