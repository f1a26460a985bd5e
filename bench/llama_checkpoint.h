#pragma once

// Checkpoints in the shape of Llama-3-8B, or of any other size, for benchmarks.

#include <cstdint>

#include "sample_checkpoint.h"

namespace prepack::bench {

struct LlamaShape {
  uint64_t layers = 4;
  uint64_t hidden = 4096;  // heads of 128; a quarter of them has keys and values
  uint64_t intermediate = 14336;
  uint64_t experts = 0;     // of each layer, in place of its MLP
  bool embeddings = false;  // and the head
  uint64_t tokens = 128256;
};

// Its modules, its other tensors and its config.json; format, seed and the like are left to the
// caller.
SampleCheckpoint LlamaCheckpoint(const LlamaShape& shape);

// Checkpoints of gpt-oss's kind: experts in MXFP4, stacked, everything else in bf16.
struct GptOssShape {
  uint64_t layers = 24;  // those of the 20B model
  uint64_t hidden = 2880;
  uint64_t intermediate = 2880;
  uint64_t experts = 32;
  bool embeddings = false;  // and the head
  uint64_t tokens = 201088;
};

SampleCheckpoint GptOssCheckpoint(const GptOssShape& shape);

}  // namespace prepack::bench
