#pragma once

// Experts that a quantizer has taken out of stacks, for models whose converter in llama.cpp knows
// the stacks only: gpt-oss and Granite's hybrids. It is to see the stacks again.

#include <cstdint>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack::gguf {

struct Source;

// How the parts of an expert lie in a stack.
enum class Joined : uint8_t { kBehindEachOther, kAlternating };

// A tensor that the converter sees in place of sources.
struct ExpertStack {
  std::string name;
  // Of each expert the sources whose rows, or elements of a bias, it has.
  std::vector<std::vector<size_t>> experts = {};
  Joined joined = Joined::kBehindEachOther;
  bool transposed = false;  // matrices are [K, N]
};

// `config` is that of the checkpoint. kMalformed for a mixture that lacks an expert, or a part of
// one.
Result<std::vector<ExpertStack>> FindExpertStacks(const Json& config,
                                                  const std::vector<Source>& sources);

}  // namespace prepack::gguf
