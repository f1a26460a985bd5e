#pragma once

// What the GEMM level is for outputs that are checkpoints: no kernel reads them, but the second
// decoder does. It decodes both checkpoints, each by what its own config says, and all weights must
// be equal.

#include <cstdint>
#include <span>
#include <string>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/io/memory_limit.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// Under a global scale that is stored as its reciprocal, weights may differ by the rounding of
// that to f32, relative to the weight.
inline constexpr double kReciprocalRounding = 0x1p-22;

struct DecodedDifferences {
  uint64_t weights = 0;  // that differ
  uint64_t n = 0;        // of the first
  uint64_t k = 0;
  double found = 0;
  double expected = 0;
  std::string other;  // what else differs; empty: nothing

  bool none() const { return weights == 0 && other.empty(); }
  // One more weight that differs.
  void Add(uint64_t channel, uint64_t input, double is, double wanted);
  // A sentence with the numbers.
  std::string Describe() const;
};

// The name under which an output is decoded: experts of a stack have one of their own each, as in a
// source that stacks them.
const std::string& NameInOutput(const PackedModule& packed);

// Adds where weights [channels, K] of output channels from n0 on differ.
void CompareWeights(std::span<const double> expected, std::span<const double> found, uint64_t k,
                    uint64_t n0, DecodedDifferences& differences);
// Of the weights of a module, what differs in its parts.
DecodedDifferences Together(std::span<const DecodedDifferences> all);

// Compares the weights, the bias and the static quantization of the inputs of a module. The errors
// are those of the decoders.
Result<DecodedDifferences> CompareDecoded(const PackedModule& packed, const SecondDecoder& source,
                                          const SecondDecoder& output, unsigned threads,
                                          Progress& progress);

// What that takes.
MemoryNeed MemoryOfDecoding(const PackedModule& packed);

}  // namespace prepack
