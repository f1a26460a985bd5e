#ifndef PREPACK_BENCH_SAMPLE_CHECKPOINT_H_
#define PREPACK_BENCH_SAMPLE_CHECKPOINT_H_

// Checkpoints of a few modules with random codes, as each quantizer would store it, for benchmarks.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace prepack::bench {

// One way to store a module.
struct SampleFormat {
  std::string name;  // "gptq 4-bit act-order"
  uint32_t bits = 4;
  // Writes config.json and model.safetensors of modules [n, k] into the folder.
  Status (*write)(const std::filesystem::path& folder, uint64_t n, uint64_t k, uint64_t modules);
};

// All that are read, most common first.
const std::vector<SampleFormat>& SampleFormats();

}  // namespace prepack::bench

#endif  // PREPACK_BENCH_SAMPLE_CHECKPOINT_H_
