#ifndef PREPACK_CHECK_CHECK_MEMORY_H_
#define PREPACK_CHECK_CHECK_MEMORY_H_

#include <cstdint>

#include "prepack/model/quantized_linear.h"

namespace prepack {

// Whether a page of the file holds few input channels of many output channels, as GPTQ and AWQ
// store them. Formats that hold the input channels of an output channel side by side have no such
// runs.
bool SpreadsRows(const QuantizedLinear& linear);

// What one thread allocates for reading the codes, scales and zero points of `rows` output
// channels, in bytes; at most.
uint64_t MemoryOfRows(const QuantizedLinear& linear, uint64_t rows);

// What one thread allocates for checking panels of the module, and for comparing them with a
// baseline.
uint64_t MemoryOfCheck(const QuantizedLinear& linear, bool with_baseline);

}  // namespace prepack

#endif  // PREPACK_CHECK_CHECK_MEMORY_H_
