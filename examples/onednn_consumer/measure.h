#pragma once

// Shows that the results are right and what packing saves. A consumer needs nothing of this file.

#include <span>
#include <vector>

#include "matmul.h"
#include "operands.h"
#include "packed_folder.h"

// Makes random inputs that a bf16 model could have; always the same ones.
std::vector<float> RandomInputs(uint64_t count);

// Signal-to-noise ratios of a result in dB, against the same product in f64 from the packed bytes.
struct Accuracy {
  double kernel_db = 0;      // with the inputs as the kernel got them, rounded
  double end_to_end_db = 0;  // with the inputs before rounding
};

Accuracy MeasureAccuracy(const Module& module, const Operands& operands, std::span<const float> x,
                         const KernelInput& input, std::span<const float> y);

// Milliseconds to the first result; the best of three runs counts.
struct Times {
  double mapped_ms = 0;     // from mapping the file on
  double reordered_ms = 0;  // from a reorder of rows [N, K] on, which a checkpoint needs at load
  bool same_bytes = false;  // whether that reorder makes the bytes that the file has
};

Times MeasureTimes(const PackedFolder& folder, const Module& module, const Matmul& matmul,
                   const Operands& operands, const KernelInput& input);
